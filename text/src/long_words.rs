//! Byte-pair merges of words of any length in time that grows with the length alone, with a way to
//! stop. The merges and their order are the `tokenizers` crate's: least rank first, then leftmost.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ahash::AHashMap;
use serde_json::Value as Json;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, Token};

/// Shorter words are left to the crate.
pub const LONG_WORD: usize = 4096;
/// So many merges are made between two questions whether to stop.
const STRIDE: usize = 4096;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Merge {
    rank: u32,
    merged: u32,
}

/// The merges of a model. Immutable.
pub struct LongWords {
    merges: AHashMap<(u32, u32), Merge>,
    byte_fallback: bool,
}

impl LongWords {
    /// `None` for a model that spells the beginning or end of a word, or chance, into its tokens.
    pub fn of(model: &BPE) -> Option<Self> {
        let plain = |part: &Option<String>| part.as_ref().is_none_or(String::is_empty);
        let is_plain = plain(&model.continuing_subword_prefix) && plain(&model.end_of_word_suffix);
        if !is_plain || model.dropout.is_some_and(|chance| chance > 0.0) {
            return None;
        }
        // The crate shows its merges in a tokenizer.json alone.
        let Json::Object(mut fields) = serde_json::to_value(model).ok()? else {
            return None;
        };
        let Json::Array(listed) = fields.remove("merges")? else {
            return None;
        };
        let mut merges = AHashMap::with_capacity(listed.len());
        for (rank, merge) in listed.iter().enumerate() {
            let (left, right) = (merge.get(0)?.as_str()?, merge.get(1)?.as_str()?);
            let merged = model.token_to_id(&format!("{left}{right}"))?;
            let pair = (model.token_to_id(left)?, model.token_to_id(right)?);
            let rank = rank as u32;
            merges.insert(pair, Merge { rank, merged });
        }
        Some(Self {
            merges,
            byte_fallback: model.byte_fallback,
        })
    }

    /// The word's tokens; `None` where it has characters that the vocabulary has no token for.
    /// `Err` once `cancelled` says so.
    pub fn tokenize(
        &self,
        model: &BPE,
        word: &str,
        cancelled: &dyn Fn() -> bool,
    ) -> tokenizers::Result<Option<Vec<Token>>> {
        let Some((ids, lengths)) = self.symbols(model, word) else {
            return Ok(None);
        };
        let mut chain = Chain::new(ids, lengths);
        let mut queue = Queue::default();
        for position in 0..chain.ids.len() {
            self.enqueue(&mut queue, &chain, position as u32);
        }
        let mut made = 0_usize;
        while let Some((merged, position)) = queue.pop() {
            made += 1;
            if made.is_multiple_of(STRIDE) && cancelled() {
                return Err("cancelled".into());
            }
            let pair = chain.pair(position);
            let found = pair.and_then(|pair| self.merges.get(&pair));
            if found.is_none_or(|merge| merge.merged != merged) {
                continue; // what stood there has been merged with something else
            }
            chain.merge(position, merged);
            let before = chain.before[position as usize];
            if before != NONE {
                self.enqueue(&mut queue, &chain, before);
            }
            self.enqueue(&mut queue, &chain, position);
        }
        Ok(Some(chain.tokens(model)))
    }

    fn enqueue(&self, queue: &mut Queue, chain: &Chain, position: u32) {
        if let Some(merge) = chain.pair(position).and_then(|pair| self.merges.get(&pair)) {
            queue.push(*merge, position);
        }
    }

    /// The tokens of single characters, or of their bytes, and how many bytes each takes.
    fn symbols(&self, model: &BPE, word: &str) -> Option<(Vec<u32>, Vec<u32>)> {
        let mut known: AHashMap<char, Option<u32>> = AHashMap::new();
        let (mut ids, mut lengths) = (Vec::new(), Vec::new());
        let mut buffer = [0; 4];
        for character in word.chars() {
            let text = &*character.encode_utf8(&mut buffer);
            let id = *known
                .entry(character)
                .or_insert_with(|| model.token_to_id(text));
            match id {
                Some(id) => {
                    ids.push(id);
                    lengths.push(text.len() as u32);
                }
                None if self.byte_fallback => {
                    for byte in text.bytes() {
                        ids.push(model.token_to_id(&format!("<0x{byte:02X}>"))?);
                        lengths.push(1);
                    }
                }
                None => return None,
            }
        }
        Some((ids, lengths))
    }
}

/// A word in pieces, each of which knows its neighbours.
struct Chain {
    ids: Vec<u32>,
    /// Bytes; 0 where a piece has been merged into the one before.
    lengths: Vec<u32>,
    before: Vec<u32>,
    behind: Vec<u32>,
}

impl Chain {
    fn new(ids: Vec<u32>, lengths: Vec<u32>) -> Self {
        let count = ids.len() as u32;
        Self {
            ids,
            lengths,
            before: (0..count).map(|i| i.wrapping_sub(1)).collect(),
            behind: (1..=count)
                .map(|i| if i < count { i } else { NONE })
                .collect(),
        }
    }

    fn pair(&self, position: u32) -> Option<(u32, u32)> {
        let right = self.behind[position as usize];
        let alive = self.lengths[position as usize] > 0 && right != NONE;
        alive.then(|| (self.ids[position as usize], self.ids[right as usize]))
    }

    fn merge(&mut self, position: u32, merged: u32) {
        let left = position as usize;
        let right = self.behind[left] as usize;
        self.ids[left] = merged;
        self.lengths[left] += self.lengths[right];
        self.lengths[right] = 0;
        self.behind[left] = self.behind[right];
        if let Some(next) = self.before.get_mut(self.behind[left] as usize) {
            *next = position;
        }
    }

    fn tokens(&self, model: &BPE) -> Vec<Token> {
        let mut names: AHashMap<u32, String> = AHashMap::new();
        let mut start = 0;
        let pieces = self.ids.iter().zip(&self.lengths);
        pieces
            .filter(|(_, length)| **length > 0)
            .map(|(id, length)| {
                let name = names
                    .entry(*id)
                    .or_insert_with(|| model.id_to_token(*id).unwrap_or_default());
                let end = start + *length as usize;
                let token = Token::new(*id, name.clone(), (start, end));
                start = end;
                token
            })
            .collect()
    }
}

/// The places of one merge. Most come in order; those that do not wait apart.
struct Places {
    merged: u32,
    ascending: VecDeque<u32>,
    others: BinaryHeap<Reverse<u32>>,
}

impl Places {
    fn push(&mut self, position: u32) {
        if self.ascending.back().is_none_or(|last| *last <= position) {
            self.ascending.push_back(position);
        } else {
            self.others.push(Reverse(position));
        }
    }

    fn pop(&mut self) -> Option<u32> {
        match (self.ascending.front(), self.others.peek()) {
            (Some(first), Some(Reverse(other))) if other < first => {}
            (None, _) => {}
            _ => return self.ascending.pop_front(),
        }
        self.others.pop().map(|Reverse(position)| position)
    }
}

/// Merges that may be made.
#[derive(Default)]
struct Queue {
    places: AHashMap<u32, Places>,
    /// Those ranks that have places.
    ranks: BinaryHeap<Reverse<u32>>,
}

impl Queue {
    fn push(&mut self, merge: Merge, position: u32) {
        let ranks = &mut self.ranks;
        let places = self.places.entry(merge.rank).or_insert_with(|| {
            ranks.push(Reverse(merge.rank));
            Places {
                merged: merge.merged,
                ascending: VecDeque::new(),
                others: BinaryHeap::new(),
            }
        });
        places.push(position);
    }

    /// The leftmost place of the first merge, and what the merge gives.
    fn pop(&mut self) -> Option<(u32, u32)> {
        while let Some(Reverse(rank)) = self.ranks.peek() {
            let rank = *rank;
            if let Some(places) = self.places.get_mut(&rank) {
                if let Some(position) = places.pop() {
                    return Some((places.merged, position));
                }
            }
            self.places.remove(&rank);
            self.ranks.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> BPE {
        let merges = [
            ("a", "a"),
            ("b", "a"),
            ("aa", "aa"),
            ("a", "b"),
            ("aa", "b"),
            ("ba", "aa"),
            ("b", "b"),
        ];
        let merges = merges.map(|(left, right)| (left.to_owned(), right.to_owned()));
        let pieces = merges.iter().map(|(left, right)| format!("{left}{right}"));
        let names = ["a", "b", "<0xC3>", "<0xA9>"].map(str::to_owned);
        let vocabulary: AHashMap<String, u32> = names
            .into_iter()
            .chain(pieces)
            .enumerate()
            .map(|(id, name)| (name, id as u32))
            .collect();
        BPE::builder()
            .vocab_and_merges(vocabulary, merges.to_vec())
            .byte_fallback(true)
            .build()
            .unwrap()
    }

    #[test]
    fn words_become_the_tokens_that_the_crate_gives() {
        let model = model();
        let words = LongWords::of(&model).unwrap();
        let mut state = 1_u32;
        for length in (1..400).chain([5000]) {
            let word: String = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ['a', 'a', 'b', 'é'][(state >> 30) as usize]
                })
                .collect();
            let tokens = words.tokenize(&model, &word, &|| false).unwrap();
            assert_eq!(tokens, Some(model.tokenize(&word).unwrap()), "{word}");
        }
        assert_eq!(words.tokenize(&model, "aüb", &|| false).unwrap(), None);
    }

    #[test]
    fn a_long_word_stops_when_asked() {
        let model = model();
        let words = LongWords::of(&model).unwrap();
        let result = words.tokenize(&model, &"a".repeat(10 * STRIDE), &|| true);
        assert!(result.is_err());
    }
}
