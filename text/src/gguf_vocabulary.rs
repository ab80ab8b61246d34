//! Builds a tokenizer from the vocabulary that GGUF metadata holds.

use ahash::AHashMap;
use serde::de::DeserializeOwned;
use serde_json::{json, Value};
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::{
    AddedToken, DecoderWrapper, ModelWrapper, NormalizerWrapper, PostProcessorWrapper,
    PreTokenizerWrapper, Tokenizer,
};

use crate::error::TextError;
use crate::pre_tokenizers;
use crate::spm_merges::merges_from_scores;
use crate::tokenizer::TextTokenizer;

/// `tokenizer.ggml.token_type`.
mod token_type {
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const BYTE: i32 = 6;
}

const SPM_SPACE: &str = "\u{2581}";

/// The keys below `tokenizer.ggml.`; empty or `None` where the file has none.
#[derive(Default)]
pub struct GgufVocabulary<'a> {
    pub model: &'a str,
    pub pre: &'a str,
    pub tokens: Vec<&'a str>,
    pub types: &'a [i32],
    pub scores: &'a [f32],
    pub merges: Vec<&'a str>,
    pub precompiled_charsmap: &'a [u8],
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub separator: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub remove_extra_whitespaces: Option<bool>,
}

/// The parts around the model, as `tokenizer.json` writes them; `Null` for none.
struct Pipeline {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    add_bos: bool,
    add_eos: bool,
}

impl GgufVocabulary<'_> {
    pub fn build(&self) -> Result<TextTokenizer, TextError> {
        self.check()?;
        let (model, pipeline) = match self.model {
            "gpt2" => self.byte_level_bpe()?,
            "llama" => self.spm_bpe()?,
            "t5" => self.unigram()?,
            "bert" => self.word_piece()?,
            other => {
                return Err(TextError::failed(format!(
                    "tokenizer.ggml.model is {other:?}, which is none of gpt2, llama, bert, t5"
                )))
            }
        };
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_normalizer(part::<NormalizerWrapper>(pipeline.normalizer.clone())?)?;
        tokenizer.with_pre_tokenizer(part::<PreTokenizerWrapper>(pipeline.pre_tokenizer.clone())?);
        tokenizer.with_decoder(part::<DecoderWrapper>(pipeline.decoder.clone())?);
        let processor = self.post_processor(&pipeline);
        tokenizer.with_post_processor(part::<PostProcessorWrapper>(processor)?);
        tokenizer.add_tokens(self.added_tokens())?;
        TextTokenizer::new(tokenizer)
    }

    fn check(&self) -> Result<(), TextError> {
        let count = self.tokens.len();
        if count == 0 {
            return Err(TextError::failed("tokenizer.ggml.tokens is empty"));
        }
        for (name, length) in [
            ("token_type", self.types.len()),
            ("scores", self.scores.len()),
        ] {
            if length != 0 && length != count {
                return Err(TextError::failed(format!(
                    "tokenizer.ggml.{name} has {length} entries but there are {count} tokens"
                )));
            }
        }
        for (name, id) in [
            ("bos_token_id", self.bos),
            ("eos_token_id", self.eos),
            ("unknown_token_id", self.unknown),
            ("seperator_token_id", self.separator),
        ] {
            if id.is_some_and(|id| id as usize >= count) {
                return Err(TextError::failed(format!(
                    "tokenizer.ggml.{name} is {} but there are {count} tokens",
                    id.unwrap_or_default()
                )));
            }
        }
        Ok(())
    }

    fn byte_level_bpe(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        let name = if self.pre.is_empty() || self.pre == "default" {
            "gpt-2"
        } else {
            self.pre
        };
        let rules = pre_tokenizers::find(name).ok_or_else(|| {
            TextError::failed(format!(
                "tokenizer.ggml.pre is {name:?}, a pre-tokenizer that is not known"
            ))
        })?;
        let vocabulary = self.ids_by_token();
        let merges = self
            .merges
            .iter()
            .map(|merge| {
                merge
                    .split_once(' ')
                    .map(|(left, right)| (left.to_owned(), right.to_owned()))
                    .ok_or_else(|| {
                        TextError::failed(format!("tokenizer.ggml.merges has {merge:?}"))
                    })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .ignore_merges(rules.ignore_merges)
            .build()?;
        let normalizer = if rules.normalize_nfc {
            json!({"type": "NFC"})
        } else {
            Value::Null
        };
        let pipeline = Pipeline {
            normalizer,
            pre_tokenizer: rules.to_json(),
            decoder: json!({
                "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true
            }),
            add_bos: self.add_bos.unwrap_or(rules.add_bos),
            add_eos: self.add_eos.unwrap_or(false),
        };
        Ok((model.into(), pipeline))
    }

    fn spm_bpe(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        if self.scores.is_empty() {
            return Err(TextError::failed(
                "tokenizer.ggml.scores is missing, which a llama vocabulary needs",
            ));
        }
        let spaced: Vec<String> = (0..self.tokens.len())
            .map(|id| self.added_content(id).into_owned())
            .collect();
        let pieces: Vec<(&str, u32, f32)> = spaced
            .iter()
            .enumerate()
            .map(|(id, piece)| {
                // Converters write a placeholder score for user-defined pieces.
                let score = match self.type_of(id) {
                    token_type::USER_DEFINED => 0.0,
                    _ => self.scores[id],
                };
                (piece.as_str(), id as u32, score)
            })
            .collect();
        let merges = merges_from_scores(&pieces);
        let vocabulary: AHashMap<String, u32> = spaced
            .iter()
            .enumerate()
            .map(|(id, piece)| (piece.clone(), id as u32))
            .collect();
        let byte_fallback = (0..self.tokens.len()).any(|id| self.type_of(id) == token_type::BYTE);
        let mut builder = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .byte_fallback(byte_fallback)
            .fuse_unk(true);
        if let Some(unknown) = self.unknown_piece() {
            builder = builder.unk_token(unknown);
        }
        let prefix = self.add_space_prefix.unwrap_or(true);
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": SPM_SPACE}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        let mut normalizers = Vec::new();
        if prefix {
            normalizers.push(json!({"type": "Prepend", "prepend": SPM_SPACE}));
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        normalizers
            .push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPM_SPACE}));
        let pipeline = Pipeline {
            normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
            pre_tokenizer: Value::Null,
            decoder: json!({"type": "Sequence", "decoders": decoders}),
            add_bos: self.add_bos.unwrap_or(true),
            add_eos: self.add_eos.unwrap_or(false),
        };
        Ok((builder.build()?.into(), pipeline))
    }

    fn unigram(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        if self.scores.is_empty() {
            return Err(TextError::failed(
                "tokenizer.ggml.scores is missing, which a t5 vocabulary needs",
            ));
        }
        let pieces: Vec<(String, f64)> = self
            .tokens
            .iter()
            .zip(self.scores)
            .map(|(token, score)| ((*token).to_owned(), f64::from(*score)))
            .collect();
        let byte_fallback = (0..self.tokens.len()).any(|id| self.type_of(id) == token_type::BYTE);
        let model = Unigram::from(pieces, self.unknown.map(|id| id as usize), byte_fallback)?;
        let mut normalizers = Vec::new();
        if !self.precompiled_charsmap.is_empty() {
            normalizers.push(json!({
                "type": "Precompiled",
                "precompiled_charsmap": base64(self.precompiled_charsmap)
            }));
        }
        let scheme = if self.add_space_prefix.unwrap_or(true) {
            "always"
        } else {
            "never"
        };
        let metaspace = json!({
            "type": "Metaspace", "replacement": SPM_SPACE, "prepend_scheme": scheme, "split": true
        });
        let pre_tokenizer = if self.remove_extra_whitespaces.unwrap_or(true) {
            json!({
                "type": "Sequence",
                "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace.clone()]
            })
        } else {
            metaspace.clone()
        };
        let pipeline = Pipeline {
            normalizer: json!({"type": "Sequence", "normalizers": normalizers}),
            pre_tokenizer,
            decoder: metaspace,
            add_bos: self.add_bos.unwrap_or(false),
            add_eos: self.add_eos.unwrap_or(true),
        };
        Ok((model.into(), pipeline))
    }

    fn word_piece(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        let mut vocabulary = AHashMap::with_capacity(self.tokens.len());
        let mut cased = false;
        for (id, token) in self.tokens.iter().enumerate() {
            let piece = word_piece(token);
            if self.type_of(id) != token_type::CONTROL && !piece.starts_with('[') {
                // Letter-like symbols count as upper case too, in uncased vocabularies as well.
                cased |= piece.chars().any(|c| c.is_ascii_uppercase());
            }
            vocabulary.insert(piece, id as u32);
        }
        let unknown = self.unknown_piece().unwrap_or_else(|| "[UNK]".to_owned());
        let model = WordPiece::builder()
            .vocab(vocabulary)
            .unk_token(unknown)
            .continuing_subword_prefix("##".to_owned())
            .build()?;
        let pipeline = Pipeline {
            normalizer: json!({
                "type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                "strip_accents": null, "lowercase": !cased
            }),
            pre_tokenizer: json!({"type": "BertPreTokenizer"}),
            decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            add_bos: self.add_bos.unwrap_or(true),
            add_eos: self.add_eos.unwrap_or(true),
        };
        Ok((model.into(), pipeline))
    }

    fn type_of(&self, id: usize) -> i32 {
        self.types.get(id).copied().unwrap_or(1)
    }

    fn ids_by_token(&self) -> AHashMap<String, u32> {
        self.tokens
            .iter()
            .enumerate()
            .map(|(id, token)| ((*token).to_owned(), id as u32))
            .collect()
    }

    fn unknown_piece(&self) -> Option<String> {
        let marked = || (0..self.tokens.len()).find(|id| self.type_of(*id) == token_type::UNKNOWN);
        let id = self.unknown.map(|id| id as usize).or_else(marked)?;
        Some(self.tokens[id].to_owned())
    }

    /// The token as it is looked for in a text: user-defined SPM pieces are written with U+2581.
    fn added_content(&self, id: usize) -> std::borrow::Cow<'_, str> {
        let token = self.tokens[id];
        if self.model == "llama" && self.type_of(id) == token_type::USER_DEFINED {
            token.replace(SPM_SPACE, " ").into()
        } else {
            token.into()
        }
    }

    fn added_tokens(&self) -> Vec<AddedToken> {
        (0..self.tokens.len())
            .filter_map(|id| {
                let special = match self.type_of(id) {
                    token_type::CONTROL | token_type::UNKNOWN => true,
                    token_type::USER_DEFINED => false,
                    _ => return None,
                };
                let content = self.added_content(id).into_owned();
                Some(AddedToken::from(content, special).normalized(false))
            })
            .collect()
    }

    fn post_processor(&self, pipeline: &Pipeline) -> Value {
        let end = if self.model == "bert" {
            self.separator.or(self.eos)
        } else {
            self.eos
        };
        let bos = self.bos.filter(|_| pipeline.add_bos);
        let eos = end.filter(|_| pipeline.add_eos);
        if bos.is_none() && eos.is_none() {
            return Value::Null;
        }
        let mut single = Vec::new();
        let mut pair = Vec::new();
        let mut special_tokens = serde_json::Map::new();
        let mut marker = |id: u32| {
            let name = self.tokens[id as usize];
            let entry = json!({"id": name, "ids": [id], "tokens": [name]});
            special_tokens.insert(name.to_owned(), entry);
            json!({"SpecialToken": {"id": name, "type_id": 0}})
        };
        let bos = bos.map(&mut marker);
        let eos = eos.map(&mut marker);
        for (sequence, parts) in [("A", 2), ("B", 1)] {
            let body = json!({"Sequence": {"id": sequence, "type_id": 0}});
            let whole: Vec<Value> = bos
                .iter()
                .cloned()
                .chain([body])
                .chain(eos.clone())
                .collect();
            if parts == 2 {
                single = whole.clone();
            }
            pair.extend(whole);
        }
        json!({
            "type": "TemplateProcessing", "single": single, "pair": pair,
            "special_tokens": special_tokens
        })
    }
}

/// Undoes the converters' spelling of WordPiece: beginnings of words carry U+2581, continuations
/// nothing.
fn word_piece(token: &str) -> String {
    if token.starts_with('[') && token.ends_with(']') {
        return token.to_owned();
    }
    match token.strip_prefix(SPM_SPACE) {
        Some(word) => word.to_owned(),
        None => format!("##{token}"),
    }
}

fn part<T: DeserializeOwned>(value: Value) -> Result<Option<T>, TextError> {
    if value.is_null() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_value(value)?))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |group, byte| (group << 8) | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for index in 0..4 {
            if index <= chunk.len() {
                let sextet = (group >> (18 - 6 * index)) & 63;
                text.push(ALPHABET[sextet as usize] as char);
            } else {
                text.push('=');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_rfc_4648_tests_it() {
        let cases = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ];
        for (plain, encoded) in cases {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn refuses_ids_outside_the_vocabulary() {
        let vocabulary = GgufVocabulary {
            model: "gpt2",
            tokens: vec!["a"],
            bos: Some(1),
            ..Default::default()
        };
        let message = vocabulary.build().err().map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("bos_token_id")));
    }
}
