//! Builds a tokenizer from a bare vocabulary: of GGUF metadata, a SentencePiece model, a rank file.

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

use crate::base64;
use crate::error::TextError;
use crate::pre_tokenizers;
use crate::spm_merges::merges_from_scores;
use crate::tokenizer::TextTokenizer;

/// `tokenizer.ggml.token_type`, which is SentencePiece's type of a piece.
pub mod token_type {
    pub const NORMAL: i32 = 1;
    pub const UNKNOWN: i32 = 2;
    pub const CONTROL: i32 = 3;
    pub const USER_DEFINED: i32 = 4;
    pub const UNUSED: i32 = 5;
    pub const BYTE: i32 = 6;
}

const SPM_SPACE: &str = "\u{2581}";

/// The longest real tokens, runs of one character, have some hundred bytes.
const LONGEST_TOKEN: usize = 8192;

/// The keys below `tokenizer.ggml.`, or what another file says of the same things; empty or `None`
/// for what is not said.
#[derive(Default)]
pub struct Vocabulary {
    /// gpt2, llama, bert, t5 or gemma4.
    pub model: String,
    pub pre: String,
    pub tokens: Vec<String>,
    pub types: Vec<i32>,
    pub scores: Vec<f32>,
    pub merges: Vec<(String, String)>,
    pub precompiled_charsmap: Vec<u8>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub separator: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: Option<bool>,
    pub add_space_prefix: Option<bool>,
    pub remove_extra_whitespaces: Option<bool>,
    /// The expression that cuts words, in place of the one that `pre` names.
    pub pattern: Option<String>,
    /// A word that is in the vocabulary is one token, whatever the merges say.
    pub whole_words: bool,
    /// Scores of user-defined pieces are real and white space is treated as SentencePiece does.
    pub is_sentencepiece: bool,
}

/// The parts around the model, as `tokenizer.json` writes them; `Null` for none.
struct Pipeline {
    normalizer: Value,
    pre_tokenizer: Value,
    decoder: Value,
    add_bos: bool,
    add_eos: bool,
    /// What `add_eos` adds.
    end: Option<u32>,
}

impl Vocabulary {
    pub fn build(mut self) -> Result<TextTokenizer, TextError> {
        self.check()?;
        let (model, pipeline) = match self.model.as_str() {
            "gemma4" => self.metaspace_bpe()?,
            "gpt2" if pre_tokenizers::is_metaspace(&self.pre) => self.metaspace_bpe()?,
            "gpt2" => self.byte_level_bpe()?,
            "llama" => self.spm_bpe()?,
            "t5" => self.unigram()?,
            "bert" => self.word_piece()?,
            other => {
                return Err(TextError::failed(format!(
                "tokenizer.ggml.model is {other:?}, which is none of gpt2, llama, bert, t5, gemma4"
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
        if let Some(id) = self
            .tokens
            .iter()
            .position(|token| token.len() > LONGEST_TOKEN)
        {
            return Err(TextError::failed(format!(
                "token {id} has more than {LONGEST_TOKEN} bytes"
            )));
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

    fn byte_level_bpe(&mut self) -> Result<(ModelWrapper, Pipeline), TextError> {
        let name = match self.pre.as_str() {
            "" | "default" => "gpt-2",
            name => name,
        };
        let rules = pre_tokenizers::find(name).ok_or_else(|| {
            TextError::failed(format!(
                "tokenizer.ggml.pre is {name:?}, a pre-tokenizer that is not known"
            ))
        })?;
        let merges = std::mem::take(&mut self.merges);
        let model = BPE::builder()
            .vocab_and_merges(self.ids_by_token(), merges)
            .ignore_merges(rules.ignore_merges || self.whole_words)
            .build()?;
        let normalizer = if rules.normalize_nfc {
            json!({"type": "NFC"})
        } else {
            Value::Null
        };
        let pipeline = Pipeline {
            normalizer,
            pre_tokenizer: match &self.pattern {
                Some(pattern) => pre_tokenizers::split_by(pattern),
                None => rules.to_json(),
            },
            decoder: json!({
                "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
                "use_regex": true
            }),
            add_bos: self.add_bos.unwrap_or(rules.add_bos),
            add_eos: self.add_eos.unwrap_or(rules.separated),
            end: self
                .eos
                .filter(|_| !rules.separated)
                .or(self.separator)
                .or(self.eos),
        };
        Ok((model.into(), pipeline))
    }

    /// Spaces written as U+2581, whole characters, and merges of the file's own.
    fn metaspace_bpe(&mut self) -> Result<(ModelWrapper, Pipeline), TextError> {
        let merges = std::mem::take(&mut self.merges);
        let mut builder = BPE::builder()
            .vocab_and_merges(self.ids_by_token(), merges)
            .byte_fallback(self.has_bytes())
            .fuse_unk(true);
        if let Some(unknown) = self.unknown_piece() {
            builder = builder.unk_token(unknown);
        }
        let prefix = self.add_space_prefix.unwrap_or(false);
        let pipeline = Pipeline {
            normalizer: self.metaspace_normalizer(prefix),
            pre_tokenizer: Value::Null,
            decoder: metaspace_decoder(prefix),
            add_bos: self.add_bos.unwrap_or(false),
            add_eos: self.add_eos.unwrap_or(false),
            end: self.eos,
        };
        Ok((builder.build()?.into(), pipeline))
    }

    /// What SentencePiece does to a text before it looks for pieces.
    fn metaspace_normalizer(&self, prefix: bool) -> Value {
        let mut steps = Vec::new();
        if !self.precompiled_charsmap.is_empty() {
            steps.push(json!({
                "type": "Precompiled",
                "precompiled_charsmap": base64::encode(&self.precompiled_charsmap)
            }));
        }
        if self.remove_extra_whitespaces.unwrap_or(false) {
            let replace = |pattern: &str, content: &str| json!({"type": "Replace", "pattern": {"Regex": pattern}, "content": content});
            steps.push(replace("^ +| +$", ""));
            steps.push(replace(" {2,}", " "));
        }
        if prefix {
            steps.push(json!({"type": "Prepend", "prepend": SPM_SPACE}));
        }
        steps.push(json!({"type": "Replace", "pattern": {"String": " "}, "content": SPM_SPACE}));
        json!({"type": "Sequence", "normalizers": steps})
    }

    fn spm_bpe(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        self.require_scores()?;
        let spaced: Vec<String> = (0..self.tokens.len())
            .map(|id| self.added_content(id).into_owned())
            .collect();
        let pieces: Vec<(&str, u32, f32)> = spaced
            .iter()
            .enumerate()
            .map(|(id, piece)| {
                // Converters write a placeholder score for user-defined pieces.
                let score = match self.type_of(id) {
                    token_type::USER_DEFINED if !self.is_sentencepiece => 0.0,
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
        let mut builder = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            .byte_fallback(self.has_bytes())
            .fuse_unk(true);
        if let Some(unknown) = self.unknown_piece() {
            builder = builder.unk_token(unknown);
        }
        let prefix = self.add_space_prefix.unwrap_or(true);
        let pipeline = Pipeline {
            normalizer: self.metaspace_normalizer(prefix),
            pre_tokenizer: Value::Null,
            decoder: metaspace_decoder(prefix),
            add_bos: self.add_bos.unwrap_or(true),
            add_eos: self.add_eos.unwrap_or(false),
            end: self.eos,
        };
        Ok((builder.build()?.into(), pipeline))
    }

    fn unigram(&self) -> Result<(ModelWrapper, Pipeline), TextError> {
        self.require_scores()?;
        let pieces: Vec<(String, f64)> = self
            .tokens
            .iter()
            .zip(&self.scores)
            .map(|(token, score)| (token.clone(), f64::from(*score)))
            .collect();
        let unknown = self.unknown.map(|id| id as usize);
        let model = Unigram::from(pieces, unknown, self.has_bytes())?;
        let prefix = self.add_space_prefix.unwrap_or(true);
        let (normalizer, pre_tokenizer, decoder) = if self.is_sentencepiece {
            (
                self.metaspace_normalizer(prefix),
                Value::Null,
                metaspace_decoder(prefix),
            )
        } else {
            self.words_with_metaspace(prefix)
        };
        let pipeline = Pipeline {
            normalizer,
            pre_tokenizer,
            decoder,
            add_bos: self.add_bos.unwrap_or(false),
            add_eos: self.add_eos.unwrap_or(true),
            end: self.eos,
        };
        Ok((model.into(), pipeline))
    }

    /// As Hugging Face converts unigram models: words are cut at any white space.
    fn words_with_metaspace(&self, prefix: bool) -> (Value, Value, Value) {
        let mut normalizers = Vec::new();
        if !self.precompiled_charsmap.is_empty() {
            normalizers.push(json!({
                "type": "Precompiled",
                "precompiled_charsmap": base64::encode(&self.precompiled_charsmap)
            }));
        }
        let scheme = if prefix { "always" } else { "never" };
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
        let normalizer = json!({"type": "Sequence", "normalizers": normalizers});
        (normalizer, pre_tokenizer, metaspace)
    }

    fn require_scores(&self) -> Result<(), TextError> {
        if self.scores.is_empty() {
            return Err(TextError::failed(format!(
                "tokenizer.ggml.scores is missing, which a {} vocabulary needs",
                self.model
            )));
        }
        Ok(())
    }

    fn has_bytes(&self) -> bool {
        (0..self.tokens.len()).any(|id| self.type_of(id) == token_type::BYTE)
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
            end: self.separator.or(self.eos),
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
            .map(|(id, token)| (token.clone(), id as u32))
            .collect()
    }

    fn unknown_piece(&self) -> Option<String> {
        let marked = || (0..self.tokens.len()).find(|id| self.type_of(*id) == token_type::UNKNOWN);
        let id = self.unknown.map(|id| id as usize).or_else(marked)?;
        Some(self.tokens[id].clone())
    }

    /// The token as it is looked for in a text: user-defined SPM pieces are written with U+2581.
    fn added_content(&self, id: usize) -> std::borrow::Cow<'_, str> {
        let token = self.tokens[id].as_str();
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
        let bos = self.bos.filter(|_| pipeline.add_bos);
        let eos = pipeline.end.filter(|_| pipeline.add_eos);
        if bos.is_none() && eos.is_none() {
            return Value::Null;
        }
        let mut single = Vec::new();
        let mut pair = Vec::new();
        let mut special_tokens = serde_json::Map::new();
        let mut marker = |id: u32| {
            let name = &self.tokens[id as usize];
            let entry = json!({"id": name, "ids": [id], "tokens": [name]});
            special_tokens.insert(name.clone(), entry);
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

fn metaspace_decoder(prefix: bool) -> Value {
    let mut steps = vec![
        json!({"type": "Replace", "pattern": {"String": SPM_SPACE}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix {
        steps.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    json!({"type": "Sequence", "decoders": steps})
}

fn part<T: DeserializeOwned>(value: Value) -> Result<Option<T>, TextError> {
    if value.is_null() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_value(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_ids_outside_the_vocabulary() {
        let vocabulary = Vocabulary {
            model: "gpt2".to_owned(),
            tokens: vec!["a".to_owned()],
            bos: Some(1),
            ..Default::default()
        };
        let message = vocabulary.build().err().map(|error| error.to_string());
        assert!(message.is_some_and(|text| text.contains("bos_token_id")));
    }
}
