//! A tokenizer with three ways to treat special tokens, and the bytes each token stands for.

use std::collections::HashSet;
use std::sync::OnceLock;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::{AddedVocabulary, Model, Tokenizer};

use crate::encode::SafeCuts;
use crate::error::TextError;
use crate::long_words::LongWords;
use crate::token_bytes::{byte_level_bytes, fallback_byte};

/// How special tokens in and around a text are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecialTokens {
    /// Those written in the text become their ids.
    Recognise,
    /// The same, and the post-processor adds its own.
    Add,
    /// All text is plain text.
    Literal,
}

/// How a vocabulary entry is turned into bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spelling {
    /// GPT-2's printable alphabet of the 256 bytes.
    ByteLevel,
    /// U+2581 is a space; `<0xNN>` is one byte.
    Metaspace,
    Plain,
}

/// Immutable once built; safe to share between threads.
pub struct TextTokenizer {
    pub(crate) inner: Tokenizer,
    special_ids: HashSet<u32>,
    pub(crate) unknown_id: Option<u32>,
    /// The added tokens with the special ones switched off.
    pub(crate) plain_vocabulary: AddedVocabulary,
    pub(crate) safe_cuts: Option<SafeCuts>,
    /// Made when the first long word comes.
    pub(crate) long_words: OnceLock<Option<LongWords>>,
    spelling: Spelling,
    size: u32,
}

impl TextTokenizer {
    /// Reads a `tokenizer.json`. Truncation and padding settings in it are dropped.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        Self::new(Tokenizer::from_bytes(json)?)
    }

    pub fn new(mut inner: Tokenizer) -> Result<Self, TextError> {
        inner.with_truncation(None)?;
        inner.with_padding(None);
        inner.set_encode_special_tokens(false);
        let added = inner.get_added_vocabulary();
        let special_ids = added
            .get_added_tokens_decoder()
            .iter()
            .filter(|(_, token)| token.special)
            .map(|(id, _)| *id)
            .collect();
        let mut plain_vocabulary = added.clone();
        plain_vocabulary.set_encode_special_tokens(true);
        let unknown_id = unknown_id(&inner);
        let spelling = spelling(inner.get_decoder());
        let safe_cuts = match spelling {
            Spelling::Metaspace => SafeCuts::of(&inner),
            _ => None,
        };
        let size = first_unused_id(&inner);
        Ok(Self {
            inner,
            special_ids,
            unknown_id,
            plain_vocabulary,
            safe_cuts,
            long_words: OnceLock::new(),
            spelling,
            size,
        })
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, TextError> {
        Ok(self.inner.decode(ids, skip_special)?)
    }

    /// The bytes a token adds to a text; empty for an id that has none.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        if let Some(token) = added.get(&id) {
            return token.content.clone().into_bytes();
        }
        let Some(name) = self.inner.get_model().id_to_token(id) else {
            return Vec::new();
        };
        match self.spelling {
            Spelling::ByteLevel => byte_level_bytes(&name),
            Spelling::Metaspace => match fallback_byte(&name) {
                Some(byte) => vec![byte],
                None => name.replace('\u{2581}', " ").into_bytes(),
            },
            Spelling::Plain => name.into_bytes(),
        }
    }

    /// The entry in the vocabulary; `None` for an id without one.
    pub fn token_name(&self, id: u32) -> Option<String> {
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        match added.get(&id) {
            Some(token) => Some(token.content.clone()),
            None => self.inner.get_model().id_to_token(id),
        }
    }

    pub fn token_id(&self, name: &str) -> Option<u32> {
        self.inner.token_to_id(name)
    }

    pub fn is_special(&self, id: u32) -> bool {
        self.special_ids.contains(&id)
    }

    /// The content of a `tokenizer.json` that gives this tokenizer.
    pub fn to_json(&self) -> Result<String, TextError> {
        Ok(self.inner.to_string(true)?)
    }

    /// One more than the highest id.
    pub fn size(&self) -> u32 {
        self.size
    }
}

fn first_unused_id(tokenizer: &Tokenizer) -> u32 {
    let model = tokenizer.get_model();
    let mut size = model.get_vocab_size() as u32;
    // Ids may have gaps: count on until the model knows no more, then past the added ones.
    while model.id_to_token(size).is_some() {
        size += 1;
    }
    let added = tokenizer.get_added_vocabulary().get_added_tokens_decoder();
    added.keys().fold(size, |size, id| size.max(id + 1))
}

fn unknown_id(tokenizer: &Tokenizer) -> Option<u32> {
    use tokenizers::ModelWrapper;
    match tokenizer.get_model() {
        ModelWrapper::BPE(model) => {
            let name = model.unk_token.as_ref()?;
            model.token_to_id(name)
        }
        ModelWrapper::WordPiece(model) => model.token_to_id(&model.unk_token),
        ModelWrapper::WordLevel(model) => model.token_to_id(&model.unk_token),
        // The model keeps its unknown id to itself: ask for a character that no vocabulary has.
        ModelWrapper::Unigram(model) => {
            let tokens = model.tokenize("\u{10FFFD}").ok()?;
            tokens.first().map(|token| token.id)
        }
    }
}

fn spelling(decoder: Option<&DecoderWrapper>) -> Spelling {
    match decoder {
        Some(DecoderWrapper::ByteLevel(_)) => Spelling::ByteLevel,
        Some(DecoderWrapper::Metaspace(_) | DecoderWrapper::ByteFallback(_)) => Spelling::Metaspace,
        Some(DecoderWrapper::Sequence(sequence)) => sequence
            .get_decoders()
            .iter()
            .map(|inner| spelling(Some(inner)))
            .find(|found| *found != Spelling::Plain)
            .unwrap_or(Spelling::Plain),
        _ => Spelling::Plain,
    }
}
