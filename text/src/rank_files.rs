//! Vocabularies kept as ranks: `tekken.json` and tiktoken's files (`*.tiktoken`, `tiktoken.model`, the
//! `tokenizer.model` of Llama 3).

use std::collections::HashMap;

use serde::Deserialize;

use crate::base64;
use crate::error::TextError;
use crate::token_bytes::byte_level_name;
use crate::vocabulary::{token_type, Vocabulary};

#[derive(Deserialize)]
struct TekkenConfig {
    pattern: String,
    default_vocab_size: usize,
    default_num_special_tokens: usize,
}

#[derive(Deserialize)]
struct TekkenToken {
    rank: usize,
    token_bytes: String,
}

#[derive(Deserialize)]
struct TekkenSpecial {
    rank: usize,
    token_str: String,
}

#[derive(Deserialize)]
struct Tekken {
    config: TekkenConfig,
    vocab: Vec<TekkenToken>,
    #[serde(default)]
    special_tokens: Option<Vec<TekkenSpecial>>,
}

/// The first special tokens of files that do not list theirs.
const TEKKEN_SPECIAL: [&str; 20] = [
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
];
/// Longer ones than any real token, for which looking for merges would take too long.
const LONGEST_TOKEN: usize = 2048;
/// A larger vocabulary is no vocabulary.
const MOST_TOKENS: usize = 4 << 20;

/// Reads a `tekken.json`: special tokens first, then the ranks.
pub fn read_tekken(content: &[u8]) -> Result<Vocabulary, TextError> {
    let file: Tekken = serde_json::from_slice(content)?;
    let special = file.config.default_num_special_tokens;
    let size = file.config.default_vocab_size;
    if size > MOST_TOKENS || special > size {
        return Err(TextError::failed(format!(
            "it names {size} tokens, {special} of them special"
        )));
    }
    let mut names: Vec<String> = (0..special)
        .map(|id| match TEKKEN_SPECIAL.get(id) {
            Some(name) if file.special_tokens.is_none() => (*name).to_owned(),
            _ => format!("<SPECIAL_{id}>"),
        })
        .collect();
    for token in file.special_tokens.unwrap_or_default() {
        if token.rank >= special {
            return Err(TextError::failed(format!(
                "special token {:?} has rank {} of {special}",
                token.token_str, token.rank
            )));
        }
        names[token.rank] = token.token_str;
    }
    let mut ranks: Vec<Vec<u8>> = Vec::new();
    for token in &file.vocab {
        if token.rank >= size - special {
            continue;
        }
        if token.rank != ranks.len() {
            return Err(TextError::failed(format!(
                "rank {} follows rank {}",
                token.rank,
                ranks.len()
            )));
        }
        ranks.push(base64::decode(token.token_bytes.as_bytes())?);
    }
    let mut vocabulary = from_ranks(&ranks, &names)?;
    vocabulary.pattern = Some(file.config.pattern);
    vocabulary.bos = position(&names, "<s>");
    vocabulary.eos = position(&names, "</s>");
    vocabulary.add_bos = Some(true);
    Ok(vocabulary)
}

fn position(names: &[String], wanted: &str) -> Option<u32> {
    let found = names.iter().position(|name| name == wanted)?;
    Some(found as u32)
}

/// Reads lines of `base64 rank`. Special tokens are not in the file.
pub fn read_tiktoken(content: &[u8]) -> Result<Vocabulary, TextError> {
    let mut ranks: Vec<Vec<u8>> = Vec::new();
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let bad = || TextError::failed(format!("line {} is no base64 text and rank", index + 1));
        let space = line.iter().position(|byte| *byte == b' ').ok_or_else(bad)?;
        let token = base64::decode(&line[..space]).map_err(|_| bad())?;
        let rank = std::str::from_utf8(&line[space + 1..]).map_err(|_| bad())?;
        if rank.trim().parse() != Ok(ranks.len()) {
            return Err(TextError::failed(format!(
                "line {} has rank {rank}, not {}",
                index + 1,
                ranks.len()
            )));
        }
        ranks.push(token);
    }
    from_ranks(&ranks, &[])
}

/// Special tokens, then the ranked ones.
fn from_ranks(ranks: &[Vec<u8>], special: &[String]) -> Result<Vocabulary, TextError> {
    if ranks.is_empty() {
        return Err(TextError::failed("it has no tokens"));
    }
    if let Some(rank) = ranks.iter().position(|token| token.len() > LONGEST_TOKEN) {
        return Err(TextError::failed(format!(
            "the token of rank {rank} has more than {LONGEST_TOKEN} bytes"
        )));
    }
    let mut vocabulary = Vocabulary {
        model: "gpt2".to_owned(),
        whole_words: true,
        ..Default::default()
    };
    for name in special {
        vocabulary.tokens.push(name.clone());
        vocabulary.types.push(token_type::CONTROL);
    }
    for token in ranks {
        vocabulary.tokens.push(byte_level_name(token));
        vocabulary.types.push(token_type::NORMAL);
    }
    vocabulary.merges = merges(ranks);
    Ok(vocabulary)
}

/// Every way to cut a token into two others, in the order in which ranks allow them.
fn merges(ranks: &[Vec<u8>]) -> Vec<(String, String)> {
    let by_bytes: HashMap<&[u8], usize> = ranks
        .iter()
        .enumerate()
        .map(|(rank, token)| (token.as_slice(), rank))
        .collect();
    let mut merges = Vec::new();
    for token in ranks {
        let mut cuts: Vec<(usize, usize)> = (1..token.len())
            .filter_map(|cut| {
                let left = by_bytes.get(&token[..cut])?;
                let right = by_bytes.get(&token[cut..])?;
                Some((*left, *right))
            })
            .collect();
        cuts.sort_unstable();
        merges.extend(cuts.into_iter().map(|(left, right)| {
            (
                byte_level_name(&ranks[left]),
                byte_level_name(&ranks[right]),
            )
        }));
    }
    merges
}
