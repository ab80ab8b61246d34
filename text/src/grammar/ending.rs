//! The way to end a text soon, so that it is complete within its limit of tokens.

use std::collections::VecDeque;
use std::sync::Arc;

use llguidance::Matcher;
use toktrie::{SimpleVob, TokTrie};

use super::thought::Thought;

/// While more tokens may come than this, no end is looked for.
const HORIZON: usize = 2048;
/// What a token inside a string may need behind it: a character's other bytes, an escape's digits.
const SLACK: usize = 8;
/// Choices outside of strings are tried out from so many tokens before the last moment on.
const CHOICE_ZONE: usize = 64;
/// Places with more choices are taken for text.
const MOST_CHOICES: u32 = 32;
/// So many tokens are gone through for the choices of one text; each takes a mask.
const CHOICE_EFFORT: usize = 500;
/// Room for the last part that the text could do without, beside the length of the shortest text.
const MARGIN: usize = 16;

/// What llguidance calls a place where no token may come.
pub(super) const DEAD_END: &str = "NoExtensionBias";

/// What the bytes of a token are good for where a text is to end, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Markup, which closes the free text before it.
    Special,
    /// Closes objects and arrays.
    Closing,
    /// Closes a string, and perhaps what it stands in.
    Quote,
    Comma,
    Colon,
    Digit,
    Word,
    Sign,
    Opening,
    Space,
    /// An end token, or an id without bytes: no part of a text.
    Unused,
}

impl Kind {
    fn of(bytes: &[u8]) -> Self {
        let all = |set: &[u8]| bytes.iter().all(|byte| set.contains(byte));
        match bytes.first() {
            None => Self::Unused,
            Some(&TokTrie::SPECIAL_TOKEN_MARKER) => Self::Special,
            Some(b'}' | b']') if all(b"}]") => Self::Closing,
            Some(b'"') if all(b"\"}]") => Self::Quote,
            Some(b',') => Self::Comma,
            Some(b':') => Self::Colon,
            Some(b'[' | b'{') => Self::Opening,
            Some(byte) if byte.is_ascii_digit() => Self::Digit,
            Some(byte) if byte.is_ascii_alphabetic() => Self::Word,
            Some(byte) if byte.is_ascii_whitespace() => Self::Space,
            Some(_) => Self::Sign,
        }
    }

    /// The order of `Route::Marks`.
    fn distance(self) -> usize {
        const NEAREST_FIRST: [Kind; 10] = [
            Kind::Special,
            Kind::Closing,
            Kind::Quote,
            Kind::Sign,
            Kind::Colon,
            Kind::Space,
            Kind::Digit,
            Kind::Opening,
            Kind::Word,
            Kind::Comma,
        ];
        let place = NEAREST_FIRST.iter().position(|kind| *kind == self);
        place.unwrap_or(NEAREST_FIRST.len())
    }

    /// In an expression like `[a-z]+@[0-9]+` one token of the kind may follow another without end.
    fn repeats(self) -> bool {
        matches!(self, Self::Digit | Self::Word | Self::Sign)
    }

    /// Of the kind's tokens the longest brings the text further.
    fn wants_length(self) -> bool {
        !matches!(self, Self::Digit | Self::Sign | Self::Space)
    }
}

/// Which kinds of tokens are tried first on the way to the end. Neither way finds the end of every
/// grammar: where a further part may follow, it begins with a word in one and with a mark in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Words before signs, and not twice the same.
    Words,
    /// Signs and white space before words, as in tags and fences, but no more than one white space.
    Marks,
}

impl Route {
    fn other(self) -> Self {
        match self {
            Self::Words => Self::Marks,
            Self::Marks => Self::Words,
        }
    }
}

#[derive(Clone, Copy)]
struct Word {
    kind: Kind,
    length: u8,
    has_quote: bool,
    /// It may begin a part that the text can do without.
    opens: bool,
}

/// What the tokens of a vocabulary are good for. Immutable.
pub struct EndingTable {
    words: Vec<Word>,
    end_tokens: Vec<u32>,
    /// Tokens that are allowed at the same place in free text alone.
    free_signs: Vec<u32>,
}

impl EndingTable {
    /// `words` are the tokens' bytes.
    pub fn new(words: &[Vec<u8>], end_tokens: &[u32]) -> Self {
        let word = |(id, bytes): (usize, &Vec<u8>)| Word {
            kind: match end_tokens.contains(&(id as u32)) {
                true => Kind::Unused,
                false => Kind::of(bytes),
            },
            length: bytes.len() as u8,
            has_quote: bytes.contains(&b'"'),
            opens: bytes.iter().any(|byte| b"{[,".contains(byte)),
        };
        let id_of = |sign: &&[u8]| words.iter().position(|bytes| bytes == sign);
        let signs: [&[u8]; 2] = [b"q", b";"];
        Self {
            words: words.iter().enumerate().map(word).collect(),
            end_tokens: end_tokens.to_vec(),
            free_signs: signs.iter().filter_map(id_of).map(|id| id as u32).collect(),
        }
    }

    fn is_digit(&self, id: u32) -> bool {
        let word = self.words.get(id as usize);
        word.is_some_and(|word| word.kind == Kind::Digit)
    }

    fn is_free_text(&self, allowed: impl Fn(u32) -> bool) -> bool {
        !self.free_signs.is_empty() && self.free_signs.iter().all(|id| allowed(*id))
    }

    /// The allowed token that brings a text nearest to its end; `run`: the kind of the last one.
    fn best(&self, mask: &SimpleVob, run: Option<Kind>, route: Route) -> Option<u32> {
        let free = self.is_free_text(|id| mask.is_allowed(id));
        let mut best = None;
        mask.iter_set_entries(|id| {
            let Some(word) = self.words.get(id) else {
                return;
            };
            if word.kind == Kind::Unused || free && !Self::ends_free_text(word.kind) {
                return;
            }
            let words = route == Route::Words;
            let may_repeat = match route {
                Route::Words => !word.kind.repeats(),
                Route::Marks => word.kind != Kind::Space,
            };
            let again = run == Some(word.kind) && !may_repeat;
            let wants_length = word.kind.wants_length() || !words && word.kind == Kind::Sign;
            let length = match wants_length {
                true => u8::MAX - word.length,
                false => word.length,
            };
            let kind = match route {
                Route::Words => word.kind as usize,
                Route::Marks => word.kind.distance(),
            };
            let rank = (again, kind, length, id);
            if best.is_none_or(|found| rank < found) {
                best = Some(rank);
            }
        });
        best.map(|(.., id)| id as u32)
    }

    /// In a string, brackets are text and words only fill it where it is still too short.
    fn ends_free_text(kind: Kind) -> bool {
        matches!(kind, Kind::Special | Kind::Quote | Kind::Word)
    }

    /// The route that is the shorter one from the beginning of a text, `limit` tokens far. Fails where
    /// the grammar costs more on the way than its limits allow: no text would come further.
    pub fn shorter_route(
        &self,
        matcher: &Matcher,
        thought: &Thought,
        text_close: &[u32],
        limit: usize,
    ) -> Result<Route, String> {
        let length = |route| {
            // This kind of clone leaves what it learns to the original.
            let mut walker = matcher.clone();
            let path = self.follow(route, &mut walker, thought.clone(), text_close, limit);
            match walker.get_error() {
                Some(error) if !error.contains(DEAD_END) => Err(error),
                _ => Ok(path.map_or(usize::MAX, |path| path.len())),
            }
        };
        Ok(match length(Route::Marks)? < length(Route::Words)? {
            true => Route::Marks,
            false => Route::Words,
        })
    }

    /// Tokens, one after the other, with which the text is complete; `None` when none are found
    /// among the first `limit`.
    fn find(
        &self,
        first: Route,
        matcher: &Matcher,
        thought: &Thought,
        text_close: &[u32],
        limit: usize,
    ) -> Option<(Route, VecDeque<u32>)> {
        [first, first.other()].into_iter().find_map(|route| {
            let path = self.follow(
                route,
                &mut matcher.clone(),
                thought.clone(),
                text_close,
                limit,
            )?;
            Some((route, path))
        })
    }

    fn follow(
        &self,
        route: Route,
        matcher: &mut Matcher,
        mut thought: Thought,
        text_close: &[u32],
        limit: usize,
    ) -> Option<VecDeque<u32>> {
        let mut path = VecDeque::new();
        let mut closing = VecDeque::new();
        let mut run = None;
        loop {
            if matcher.is_stopped() {
                return Some(path);
            }
            if path.len() >= limit {
                return None;
            }
            if thought.is_open() && closing.is_empty() {
                closing.extend(thought.close_ids());
            }
            let id = match closing.pop_front() {
                Some(id) => id,
                None if matcher.is_accepting().ok()? => {
                    path.extend(self.end_tokens.first());
                    return Some(path);
                }
                None => {
                    let mask = matcher.compute_mask().ok()?;
                    // A quote did not end it: the text has no quotes around it.
                    let unquoted =
                        run == Some(Kind::Quote) && self.is_free_text(|id| mask.is_allowed(id));
                    // It may be too short to end.
                    if unquoted && matcher.validate_tokens(text_close).ok()? == text_close.len() {
                        closing.extend(text_close);
                    }
                    match closing.pop_front() {
                        Some(id) => id,
                        None => self.best(&mask, run, route)?,
                    }
                }
            };
            matcher.consume_token(id).ok()?;
            thought.commit(id);
            run = self.words.get(id as usize).map(|word| word.kind);
            path.push_back(id);
        }
    }
}

fn is_set(mask: &[u32], id: u32) -> bool {
    mask[id as usize / 32] >> (id % 32) & 1 != 0
}

fn count(mask: &[u32]) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

/// Watches that a text can end within its limit.
#[derive(Clone)]
pub struct Ending {
    table: Arc<EndingTable>,
    /// What ends free text that has no quotes around it.
    text_close: Arc<[u32]>,
    route: Route,
    /// Tokens that may still come.
    remaining: usize,
    /// An end is looked for when no more than so many remain.
    next_look: usize,
    /// From so many tokens before the last moment on nothing is begun that need not be.
    zone: usize,
    /// How the text would end from here, where that is known.
    path: Option<VecDeque<u32>>,
    /// The same behind other tokens that may come next.
    choices: Vec<(u32, VecDeque<u32>)>,
    /// What is left of `CHOICE_EFFORT`.
    effort: usize,
}

impl Ending {
    pub fn new(
        table: Arc<EndingTable>,
        text_close: Arc<[u32]>,
        route: Route,
        limit: usize,
    ) -> Self {
        Self {
            table,
            text_close,
            route,
            remaining: limit,
            next_look: HORIZON,
            zone: 0,
            path: None,
            choices: Vec::new(),
            effort: CHOICE_EFFORT,
        }
    }

    pub fn commit(&mut self, id: u32) {
        self.remaining = self.remaining.saturating_sub(1);
        let followed = self.path.as_mut().and_then(VecDeque::pop_front);
        if followed != Some(id) {
            let chosen = self.choices.drain(..).find(|(choice, _)| *choice == id);
            self.path = chosen.map(|(_, path)| path);
        }
        self.choices.clear();
    }

    pub fn rollback(&mut self, count: usize) {
        self.remaining += count;
        self.next_look = HORIZON;
        self.path = None;
        self.choices.clear();
    }

    /// Takes from the mask what would leave no room to end the text. Where there is no room already,
    /// or no end is found, the mask stays as it is.
    pub fn narrow(&mut self, matcher: &Matcher, thought: &Thought, mask: &mut [u32]) {
        self.choices.clear();
        if self.remaining > self.next_look {
            return;
        }
        if self.path.is_none() {
            let found = self.table.find(
                self.route,
                matcher,
                thought,
                &self.text_close,
                self.remaining,
            );
            if let Some((route, path)) = found {
                self.route = route;
                self.path = Some(path);
            }
        }
        let Some(path) = &self.path else {
            self.next_look = self.remaining / 2;
            return;
        };
        let Some(next) = path.front().copied() else {
            return;
        };
        let length = path.len();
        if self.zone == 0 {
            self.zone = length + MARGIN + 4 * self.text_close.len();
        }
        let free = self.table.is_free_text(|id| is_set(mask, id));
        let may_end = !free && self.table.end_tokens.contains(&next);
        // Where text has no quotes, the next optional part may begin with any token.
        let slack = SLACK + 4 * self.text_close.len();
        let zoned = self.remaining <= length + self.zone;
        let structure = !free && !may_end && !self.table.is_digit(next);
        let near = self.remaining <= length + self.zone.max(CHOICE_ZONE);
        if structure && near && self.effort > 0 && count(mask) <= MOST_CHOICES {
            self.try_choices(matcher, thought, mask, next);
        } else if self.remaining <= length + slack || zoned && may_end {
            mask.fill(0);
            mask[next as usize / 32] = 1 << (next % 32);
        } else if zoned {
            self.leave_out_openings(mask, next);
        } else {
            // A single token cannot bring the last moment much nearer.
            let room = self.remaining - length - self.zone;
            self.next_look = self.remaining - (room / 8).max(1);
            self.path = None;
        }
    }

    /// Takes those from the mask after which the text would not be complete in time; `next` is not one
    /// of them.
    fn try_choices(&mut self, matcher: &Matcher, thought: &Thought, mask: &mut [u32], next: u32) {
        for (index, bits) in mask.iter_mut().enumerate() {
            let mut rest = *bits;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                let id = index as u32 * 32 + bit;
                if id == next {
                    continue;
                }
                match self.path_behind(matcher, thought, id) {
                    Some(path) => self.choices.push((id, path)),
                    None => *bits &= !(1 << bit),
                }
            }
        }
    }

    /// The way to the end once the token has come, in what then remains.
    fn path_behind(
        &mut self,
        matcher: &Matcher,
        thought: &Thought,
        id: u32,
    ) -> Option<VecDeque<u32>> {
        let (mut matcher, mut thought) = (matcher.clone(), thought.clone());
        matcher.consume_token(id).ok()?;
        thought.commit(id);
        let limit = self.remaining - 1;
        let path = self
            .table
            .follow(self.route, &mut matcher, thought, &self.text_close, limit);
        let gone = path.as_ref().map_or(limit, VecDeque::len);
        self.effort = self.effort.saturating_sub(gone);
        path
    }

    fn leave_out_openings(&self, mask: &mut [u32], kept: u32) {
        let free = self.table.is_free_text(|id| is_set(mask, id));
        for (index, bits) in mask.iter_mut().enumerate() {
            let mut rest = *bits;
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                let id = index as u32 * 32 + bit;
                let Some(word) = self.table.words.get(id as usize) else {
                    continue;
                };
                let opens = word.has_quote || word.opens && !free || word.kind == Kind::Special;
                if opens && id != kept {
                    *bits &= !(1 << bit);
                }
            }
        }
    }
}
