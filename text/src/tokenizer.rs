//! A tokenizer with three ways to treat special tokens, and the bytes each token stands for.

use std::collections::HashSet;

use tokenizers::decoders::DecoderWrapper;
use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
use tokenizers::tokenizer::OffsetType;
use tokenizers::{AddedVocabulary, Model, PreTokenizer, Token, Tokenizer};

use crate::error::TextError;

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
    inner: Tokenizer,
    special_ids: HashSet<u32>,
    unknown_id: Option<u32>,
    /// The added tokens with the special ones switched off.
    plain_vocabulary: AddedVocabulary,
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
        let size = first_unused_id(&inner);
        Ok(Self {
            inner,
            special_ids,
            unknown_id,
            plain_vocabulary,
            spelling,
            size,
        })
    }

    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, TextError> {
        match special {
            SpecialTokens::Literal => self.encode_literal(text),
            _ => {
                let encoding = self
                    .inner
                    .encode_fast(text, special == SpecialTokens::Add)?;
                Ok(encoding.get_ids().to_vec())
            }
        }
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

    /// One more than the highest id.
    pub fn size(&self) -> u32 {
        self.size
    }

    fn encode_literal(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut pieces: PreTokenizedString = self
            .plain_vocabulary
            .extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(pre_tokenizer) = self.inner.get_pre_tokenizer() {
            pre_tokenizer.pre_tokenize(&mut pieces)?;
        }
        let model = self.inner.get_model();
        pieces.tokenize(|piece| {
            let tokens = model.tokenize(piece.get())?;
            if tokens.iter().any(|token| self.is_marker(token)) {
                self.spell_out(tokens)
            } else {
                Ok(tokens)
            }
        })?;
        let encoding = pieces.into_encoding(None, 0, OffsetType::None)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// A special token that the model itself found in plain text.
    fn is_marker(&self, token: &Token) -> bool {
        self.special_ids.contains(&token.id) && self.unknown_id != Some(token.id)
    }

    /// Replaces special tokens that a model found as ordinary pieces by those of their halves.
    fn spell_out(&self, tokens: Vec<Token>) -> tokenizers::Result<Vec<Token>> {
        let model = self.inner.get_model();
        let mut plain = Vec::with_capacity(tokens.len());
        for token in tokens {
            let first_length = token.value.chars().next().map_or(0, char::len_utf8);
            if !self.is_marker(&token) || first_length == token.value.len() {
                plain.push(token);
                continue;
            }
            let (first, rest) = token.value.split_at(first_length);
            plain.extend(self.spell_out(model.tokenize(first)?)?);
            plain.extend(self.spell_out(model.tokenize(rest)?)?);
        }
        Ok(plain)
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

/// The byte that a piece `<0xNN>` stands for.
fn fallback_byte(name: &str) -> Option<u8> {
    let digits = name.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

/// Undoes GPT-2's alphabet, in which the bytes that are no printable Latin-1 character are moved to
/// U+0100 and up, in order.
fn byte_level_bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for character in name.chars() {
        match byte_of(character) {
            Some(byte) => bytes.push(byte),
            None => {
                let mut buffer = [0; 4];
                bytes.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
    bytes
}

fn byte_of(character: char) -> Option<u8> {
    match character as u32 {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8),
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8),
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_alphabet_covers_every_byte_once() {
        let mut seen: Vec<u8> = (0..0x144)
            .filter_map(char::from_u32)
            .filter_map(byte_of)
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=255).collect::<Vec<u8>>());
        assert_eq!(byte_level_bytes("ĠĊ"), b" \n");
    }

    #[test]
    fn fallback_bytes() {
        assert_eq!(fallback_byte("<0x0A>"), Some(10));
        assert_eq!(fallback_byte("<0x0A"), None);
        assert_eq!(fallback_byte("<0x123>"), None);
    }
}
