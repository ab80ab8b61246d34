//! Rank files against what tiktoken gives: data/ranks.json, made by reference/make_rank_tables.py.

use std::ops::Range;

use espalier_text::encode::EncodeRequest;
use espalier_text::model_files;
use espalier_text::tokenizer::{SpecialTokens, TextTokenizer};
use espalier_text::TextError;
use serde_json::Value;

fn table() -> Value {
    serde_json::from_str(include_str!("data/ranks.json")).unwrap()
}

fn expect_cases(tokenizer: &TextTokenizer, table: &Value, shift: u32) {
    for case in table["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids: Vec<u32> = case["ids"]
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_u64().unwrap() as u32 + shift)
            .collect();
        let found = tokenizer.encode(text, SpecialTokens::Literal).unwrap();
        assert_eq!(found, ids, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
}

fn tekken() -> TextTokenizer {
    let content = table()["tekken"].to_string();
    model_files::read("tekken.json", content.as_bytes(), b"").unwrap()
}

#[test]
fn tiktoken_files_encode_as_tiktoken() {
    let table = table();
    let content = table["tiktoken"].as_str().unwrap();
    let config =
        br#"{"added_tokens_decoder": {"335": {"content": "<|im_end|>", "special": true}}}"#;
    let tokenizer = model_files::read("qwen.tiktoken", content.as_bytes(), config).unwrap();
    // The text with a combining accent apart, which Qwen composes.
    let mut cases = table.clone();
    cases["cases"]
        .as_array_mut()
        .unwrap()
        .retain(|case| !case["text"].as_str().unwrap().contains('\u{301}'));
    expect_cases(&tokenizer, &cases, 0);
    let marked = tokenizer
        .encode("a<|im_end|>", SpecialTokens::Recognise)
        .unwrap();
    assert_eq!(marked.last(), Some(&335));
    let unnamed = model_files::read("other.tiktoken", content.as_bytes(), b"");
    assert!(unnamed.err().unwrap().to_string().contains("ranks"));
}

#[test]
fn tekken_files_encode_as_tiktoken() {
    let table = table();
    let tokenizer = tekken();
    expect_cases(&tokenizer, &table, 8);
    let ids = tokenizer.encode("[INST]a", SpecialTokens::Add).unwrap();
    assert_eq!(&ids[..2], [1, 3]);
    assert_eq!(tokenizer.token_name(5).as_deref(), Some("<SPECIAL_5>"));
}

#[test]
fn marked_spans_stay_text() {
    let tokenizer = tekken();
    let text = "<s>a [INST] b[INST]";
    let encode = |literal: &[Range<usize>]| {
        tokenizer
            .encode_as(
                text,
                &EncodeRequest {
                    special: SpecialTokens::Recognise,
                    literal,
                    cancelled: &|| false,
                },
            )
            .unwrap()
    };
    let inner = tokenizer
        .encode("a [INST] b", SpecialTokens::Literal)
        .unwrap();
    let expected: Vec<u32> = [1].into_iter().chain(inner).chain([3]).collect();
    assert_eq!(encode(std::slice::from_ref(&(5..11))), expected);
    assert_eq!(
        encode(&[]),
        tokenizer.encode(text, SpecialTokens::Recognise).unwrap()
    );
    let all = tokenizer.encode(text, SpecialTokens::Literal).unwrap();
    assert_eq!(encode(&[0..3, 5..11, 13..19]), all);
}

#[test]
fn encoding_stops_when_asked() {
    let asked = std::cell::Cell::new(0);
    let result = tekken().encode_as(
        &"the other ".repeat(1000),
        &EncodeRequest {
            special: SpecialTokens::Recognise,
            literal: &[],
            cancelled: &|| {
                asked.set(asked.get() + 1);
                asked.get() > 20
            },
        },
    );
    assert!(matches!(result, Err(TextError::Cancelled)));
    assert!(asked.get() < 30);
}

#[test]
fn whole_vocabulary_round_trips() {
    let tokenizer = tekken();
    for id in 0..tokenizer.size() {
        let bytes = tokenizer.token_bytes(id);
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let ids = tokenizer.encode(&text, SpecialTokens::Recognise).unwrap();
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text, "{id}");
    }
}
