//! Tokenizers of checkpoints without a `tokenizer.json`: `tokenizer.model`, `tekken.json`, tiktoken
//! ranks, each with what `tokenizer_config.json` adds.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::TextError;
use crate::rank_files;
use crate::sentencepiece;
use crate::tokenizer::TextTokenizer;
use crate::vocabulary::{token_type, Vocabulary};

/// More ids than that between two tokens are no vocabulary's.
const LARGEST_GAP: usize = 1 << 16;

/// `name` is the file's, `config` the content of `tokenizer_config.json` or nothing.
pub fn read(name: &str, content: &[u8], config: &[u8]) -> Result<TextTokenizer, TextError> {
    let config: Map<String, Value> = if config.is_empty() {
        Map::new()
    } else {
        serde_json::from_slice(config)?
    };
    let mut vocabulary = if name.ends_with(".json") {
        rank_files::read_tekken(content)?
    } else if sentencepiece::is_model(content) {
        let mut vocabulary = sentencepiece::read(content)?;
        vocabulary.is_sentencepiece = true;
        vocabulary
    } else {
        read_ranks(name, content, &config)?
    };
    add_tokens(&mut vocabulary, &config)?;
    for (flag, key) in [
        (&mut vocabulary.add_bos, "add_bos_token"),
        (&mut vocabulary.add_eos, "add_eos_token"),
    ] {
        *flag = config.get(key).and_then(Value::as_bool).or(*flag);
    }
    for (id, key) in [
        (&mut vocabulary.bos, "bos_token"),
        (&mut vocabulary.eos, "eos_token"),
        (&mut vocabulary.unknown, "unk_token"),
    ] {
        let name = config.get(key).and_then(token_text);
        let found = name.and_then(|name| vocabulary.tokens.iter().position(|t| t == name));
        *id = found.map(|id| id as u32).or(*id);
    }
    vocabulary.build()
}

/// A token is written as text or as an object with the text in `content`.
fn token_text(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

/// Whose ranks they are, which says how text is cut and which special tokens follow.
fn read_ranks(
    name: &str,
    content: &[u8],
    config: &Map<String, Value>,
) -> Result<Vocabulary, TextError> {
    let mut vocabulary = rank_files::read_tiktoken(content)?;
    let described = format!(
        "{name} {} {}",
        config.get("tokenizer_class").unwrap_or(&Value::Null),
        config.get("auto_map").unwrap_or(&Value::Null)
    )
    .to_lowercase();
    let ranks = vocabulary.tokens.len();
    let (pre, special) = if described.contains("qwen") {
        ("qwen2", qwen_special())
    } else if described.contains("kimi") || described.contains("tiktokentokenizer") {
        ("kimi-k2", Vec::new())
    } else if described.contains("hunyuan")
        || described.contains("hytokenizer")
        || name == "hy.tiktoken"
    {
        ("hunyuan", Vec::new())
    } else if ranks == 128_000 {
        ("llama-bpe", llama3_special())
    } else if ranks == 199_998 || name.starts_with("o200k") {
        ("gpt-4o", Vec::new())
    } else if ranks == 100_256 || name.starts_with("cl100k") {
        ("dbrx", Vec::new())
    } else {
        return Err(TextError::failed(format!(
            "it has {ranks} ranks, and neither they nor tokenizer_config.json say how its model cuts text into words"
        )));
    };
    pre.clone_into(&mut vocabulary.pre);
    if !config.contains_key("added_tokens_decoder") {
        for token in special {
            vocabulary.tokens.push(token);
            vocabulary.types.push(token_type::CONTROL);
        }
    }
    let position = |name: &str| vocabulary.tokens.iter().position(|token| token == name);
    vocabulary.bos = position("<|begin_of_text|>").map(|id| id as u32);
    vocabulary.eos = position("<|end_of_text|>")
        .or_else(|| position("<|endoftext|>"))
        .map(|id| id as u32);
    Ok(vocabulary)
}

/// The special tokens that follow the ranks in Llama 3's own code, release 3.1 on.
fn llama3_special() -> Vec<String> {
    const NAMED: [&str; 12] = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
        "<|finetune_right_pad_id|>",
        "<|step_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|python_tag|>",
        "<|image|>",
    ];
    let reserved = (2..).map(|index| format!("<|reserved_special_token_{index}|>"));
    let named = NAMED.iter().map(|name| (*name).to_owned());
    named.chain(reserved).take(256).collect()
}

/// Those of the first Qwen.
fn qwen_special() -> Vec<String> {
    let named = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned);
    let extra = (0..205).map(|index| format!("<|extra_{index}|>"));
    named.into_iter().chain(extra).collect()
}

/// The tokens of `added_tokens_decoder`, at their ids.
fn add_tokens(vocabulary: &mut Vocabulary, config: &Map<String, Value>) -> Result<(), TextError> {
    let Some(Value::Object(added)) = config.get("added_tokens_decoder") else {
        return Ok(());
    };
    let mut by_id: BTreeMap<usize, (&str, bool)> = BTreeMap::new();
    for (id, token) in added {
        let bad = || TextError::failed(format!("added_tokens_decoder has no token for {id:?}"));
        let number = id.parse().map_err(|_| bad())?;
        let content = token
            .get("content")
            .and_then(Value::as_str)
            .ok_or_else(bad)?;
        let special = token
            .get("special")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        by_id.insert(number, (content, special));
    }
    for (id, (content, special)) in by_id {
        if id > vocabulary.tokens.len() + LARGEST_GAP {
            return Err(TextError::failed(format!(
                "added_tokens_decoder has a token at {id}"
            )));
        }
        while vocabulary.tokens.len() <= id {
            let unused = format!("<|unused_{}|>", vocabulary.tokens.len());
            vocabulary.tokens.push(unused);
            vocabulary.types.push(token_type::UNUSED);
            if !vocabulary.scores.is_empty() {
                vocabulary.scores.push(f32::MIN);
            }
        }
        content.clone_into(&mut vocabulary.tokens[id]);
        let kind = &mut vocabulary.types[id];
        *kind = match special {
            true if *kind == token_type::UNKNOWN => token_type::UNKNOWN,
            true => token_type::CONTROL,
            false => token_type::USER_DEFINED,
        };
    }
    Ok(())
}
