//! The tokenizer as llguidance sees it: a byte string for each token id.

use std::sync::{Arc, OnceLock};

use llguidance::ParserFactory;
use toktrie::{
    InferenceCapabilities, TokEnv, TokRxInfo, TokTrie, TokenId, TokenizerEnv, INVALID_TOKEN,
};

use super::ending::EndingTable;
use super::masks::{prose_expressions, Words};
use crate::error::TextError;
use crate::tokenizer::{SpecialTokens, TextTokenizer};

/// What a mask may cost, in expressions derived. Where a text may go on with anything but some marks,
/// 150,000 tokens take more than llguidance's 200,000, and a mask that is refused ends an answer.
const MASK_EFFORT: u64 = 2_000_000;

/// Most bytes that llguidance's token table can hold for one token.
const TOKEN_BYTES_LIMIT: usize = 255;

/// What grammars are compiled for: a tokenizer, the width of the model's logits and its end tokens.
/// Immutable; building it takes half a second for 150,000 tokens.
pub struct GrammarVocabulary {
    factory: ParserFactory,
    tokenizer: Arc<TextTokenizer>,
    width: u32,
    endings: Arc<EndingTable>,
    words: Arc<Words>,
}

impl GrammarVocabulary {
    pub fn new(
        tokenizer: Arc<TextTokenizer>,
        width: u32,
        end_tokens: &[u32],
    ) -> Result<Self, TextError> {
        let words: Vec<Vec<u8>> = (0..width).map(|id| word(&tokenizer, id)).collect();
        let end_tokens: Vec<TokenId> = end_tokens
            .iter()
            .copied()
            .filter(|id| *id < width)
            .collect();
        let endings = Arc::new(EndingTable::new(&words, &end_tokens));
        let first_end = end_tokens.first().copied().unwrap_or(INVALID_TOKEN);
        let mut trie = TokTrie::from(&TokRxInfo::new(width, first_end), &words);
        if !end_tokens.is_empty() {
            trie = trie.with_eos_tokens(&end_tokens);
        }
        let environment = Arc::new(Environment {
            no_words: TokTrie::from(&TokRxInfo::new(1, INVALID_TOKEN), &[Vec::new()]),
            trie: OnceLock::new(),
            tokenizer: Arc::clone(&tokenizer),
        });
        // Forced tokens are found through masks, which force canonical tokens by themselves. The
        // factory makes tables of all words for llguidance's own way to compute masks, which nobody
        // uses: it is given none.
        let shared: TokEnv = environment.clone();
        let mut factory = ParserFactory::new(
            &shared,
            InferenceCapabilities::default(),
            &prose_expressions(),
        )
        .map_err(|error| TextError::failed(format!("{error:#}")))?;
        let _ = environment.trie.set(trie);
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.step_lexer_fuel = MASK_EFFORT;
        Ok(Self {
            factory,
            tokenizer,
            width,
            endings,
            words: Arc::new(Words::new(shared)),
        })
    }

    pub fn factory(&self) -> &ParserFactory {
        &self.factory
    }

    pub fn tokenizer(&self) -> Arc<TextTokenizer> {
        Arc::clone(&self.tokenizer)
    }

    /// The tokens of a text in the middle of others.
    pub fn tokenize(&self, text: &str) -> Vec<u32> {
        self.factory.tok_env().tokenize_bytes(text.as_bytes())
    }

    /// The same, special tokens that stand in it apart.
    pub fn tokenize_markup(&self, text: &str) -> Vec<u32> {
        let recognised = self.tokenizer.encode(text, SpecialTokens::Recognise);
        match recognised {
            Ok(ids) if ids.iter().any(|id| self.tokenizer.is_special(*id)) => ids,
            _ => self.tokenize(text),
        }
    }

    pub fn ending_table(&self) -> Arc<EndingTable> {
        Arc::clone(&self.endings)
    }

    /// What masks are computed from.
    pub fn words(&self) -> Arc<Words> {
        Arc::clone(&self.words)
    }

    /// Width of the masks: ids from 0 to below it.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// How a Lark grammar refers to a piece of the model's markup: by id when it is one special
    /// token, else as a string.
    pub fn reference(&self, text: &str) -> String {
        match self.tokenizer.token_id(text) {
            Some(id) if self.tokenizer.is_special(id) && id < self.width => format!("<[{id}]>"),
            _ => serde_json::Value::from(text).to_string(),
        }
    }
}

/// The bytes of a token; special ones carry a mark that no text can match, missing ones are empty
/// and never allowed.
fn word(tokenizer: &TextTokenizer, id: u32) -> Vec<u8> {
    let mut bytes = tokenizer.token_bytes(id);
    if tokenizer.is_special(id) {
        bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    }
    if bytes.len() > TOKEN_BYTES_LIMIT {
        bytes.clear();
    }
    bytes
}

struct Environment {
    trie: OnceLock<TokTrie>,
    /// As long as `trie` is not set.
    no_words: TokTrie,
    tokenizer: Arc<TextTokenizer>,
}

impl Environment {
    fn spells(&self, ids: &[u32], text: &str) -> bool {
        ids.iter()
            .all(|id| (*id as usize) < self.tok_trie().vocab_size())
            && self.tok_trie().decode_raw(ids) == text.as_bytes()
    }

    /// The tokens of text in the middle of other text: those that a tokenizer gives after a
    /// character which joins with nothing, since several put a space at the beginning.
    fn tokenize_within(&self, text: &str) -> Option<Vec<u32>> {
        const NEUTRAL: &str = "\u{2}";
        let tokenize = |text: &str| self.tokenizer.encode(text, SpecialTokens::Literal).ok();
        let ids = tokenize(text)?;
        if self.spells(&ids, text) {
            return Some(ids);
        }
        let before = tokenize(NEUTRAL)?;
        let ids = tokenize(&format!("{NEUTRAL}{text}"))?;
        let ids = ids.strip_prefix(before.as_slice())?;
        self.spells(ids, text).then(|| ids.to_vec())
    }
}

impl Environment {
    /// The longest tokens one after the other, up to a byte that no token begins with.
    fn tokenize_greedily(&self, text: &str) -> Vec<u32> {
        let mut ids = self.tok_trie().greedy_tokenize(text.as_bytes());
        while !text
            .as_bytes()
            .starts_with(&self.tok_trie().decode_raw(&ids))
        {
            ids.pop();
        }
        ids
    }
}

impl TokenizerEnv for Environment {
    fn tok_trie(&self) -> &TokTrie {
        self.trie.get().unwrap_or(&self.no_words)
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.tok_trie()
            .tokenize_with_greedy_fallback(bytes, |text| {
                self.tokenize_within(text)
                    .unwrap_or_else(|| self.tokenize_greedily(text))
            })
    }
}
