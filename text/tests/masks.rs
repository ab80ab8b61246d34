//! Masks are those that llguidance computes by going through the whole vocabulary.

use std::sync::Arc;

use espalier_text::grammar::{parse, Constraint, ConstraintMatcher, GrammarVocabulary, Source};
use espalier_text::tokenizer::TextTokenizer;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use llguidance::Matcher;
use serde_json::json;
use toktrie::{SimpleVob, TokEnv, TokTrie};

const END: u32 = 2;

const GRAMMARS: [&str; 8] = [
    r#"start: %json {"type":"object","properties":{"name":{"type":"string","maxLength":9},
       "tags":{"type":"array","items":{"type":"string","minLength":2,"maxLength":60}}}}"#,
    r#"start: %json {"type":["object","array","string","number"]}"#,
    r#"start: "<p>" /[^ &<]*/ ("&" /[a-z]+/)? "</p>""#,
    "start: \"<p>\\n\" text\ntext[lazy]: /(?s:.*)\\n<\\/p>/",
    "start: TEXT \"|\"\nTEXT: /(?s:.*)/ & ~/(?s:.*)\\|(?s:.*)/",
    "start: word (\" \" word)*\nword: /[A-Za-zà-ÿ]{1,6}/ | /[0-9]+/",
    "start: /(?s:.{0,40})/",
    "start: <[5]> /(?s:.*)/ <[6]>",
];

fn next(random: &mut u64) -> usize {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) as usize
}

/// Every byte, and 4,000 made-up tokens, in GPT-2's spelling.
fn vocabulary() -> Arc<GrammarVocabulary> {
    const PARTS: [&str; 24] = [
        "a", "b", "p", "e", "x", "1", "7", "\u{120}", "\u{10A}", "\u{C3}", "\u{A9}", "\u{E2}", "<",
        ">", "/", "\"", "\\", "n", "&", "|", "{", "}", ":", ",",
    ];
    let mut tokens = vec!["<s>".to_owned(), "</s>".to_owned(), "<end>".to_owned()];
    tokens.extend(["<u>", "<v>", "<w>", "<y>"].map(str::to_owned));
    let moved = (0x100..0x144).filter_map(char::from_u32);
    let printable = ('!'..='~')
        .chain('\u{A1}'..='\u{AC}')
        .chain('\u{AE}'..='\u{FF}');
    tokens.extend(printable.chain(moved).map(String::from));
    let specials: Vec<serde_json::Value> = (0..7)
        .map(|id| {
            json!({"id": id, "content": tokens[id], "special": true, "single_word": false,
            "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    let mut random = 1;
    while tokens.len() < 4300 {
        let length = 2 + next(&mut random) % 7;
        let token: String = (0..length)
            .map(|_| PARTS[next(&mut random) % PARTS.len()])
            .collect();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
    }
    let ids: serde_json::Map<String, serde_json::Value> = tokens
        .into_iter()
        .enumerate()
        .map(|(id, token)| (token, id.into()))
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true});
    let file = json!({"version": "1.0", "added_tokens": specials, "pre_tokenizer": byte_level,
        "decoder": byte_level, "model": {"type": "BPE", "vocab": ids, "merges": []}});
    let tokenizer = TextTokenizer::from_json(file.to_string().as_bytes()).unwrap();
    let width = tokenizer.size();
    Arc::new(GrammarVocabulary::new(Arc::new(tokenizer), width, &[END]).unwrap())
}

/// Goes through all tokens.
struct WholeVocabulary(TokEnv);

impl BiasComputer for WholeVocabulary {
    fn compute_bias(&self, parser: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.trie().alloc_token_set();
        self.trie().add_bias(parser, &mut mask, start);
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.0.tok_trie()
    }
}

/// llguidance's own state of a text.
fn reference(vocabulary: &GrammarVocabulary, grammar: &str) -> Matcher {
    let factory = vocabulary.factory();
    let parsed = parse(Source::Lark, grammar).unwrap();
    let mut parser = factory.create_parser(parsed).unwrap();
    parser.bias_computer = Arc::new(WholeVocabulary(factory.tok_env().clone()));
    Matcher::new(Ok(parser))
}

/// Goes on at random among what is allowed.
fn walk(vocabulary: &GrammarVocabulary, ours: &mut ConstraintMatcher, grammar: &str, seed: u64) {
    let mut theirs = reference(vocabulary, grammar);
    let mut random = seed;
    let mut words = vec![0_u32; vocabulary.width().div_ceil(32) as usize];
    for _ in 0..40 {
        if ours.stopped() {
            assert!(theirs.is_stopped());
            return;
        }
        ours.mask(&mut words).unwrap();
        let expected = theirs.compute_mask().unwrap();
        let allowed: Vec<u32> = (0..vocabulary.width())
            .filter(|id| expected.is_allowed(*id))
            .collect();
        let found: Vec<u32> = (0..vocabulary.width())
            .filter(|id| words[*id as usize / 32] >> (id % 32) & 1 != 0)
            .collect();
        assert_eq!(found, allowed, "{grammar}");
        let id = allowed[next(&mut random) % allowed.len()];
        ours.commit(id).unwrap();
        theirs.consume_token(id).unwrap();
    }
}

#[test]
fn masks_are_those_of_the_whole_vocabulary() {
    let vocabulary = vocabulary();
    for grammar in GRAMMARS {
        let constraint =
            Constraint::compile(Arc::clone(&vocabulary), Source::Lark, grammar, None, "").unwrap();
        for seed in 0..6 {
            // The second text at a time has a lexer of its own, the next ones those of texts that ended.
            let mut other = constraint.matcher();
            walk(&vocabulary, &mut constraint.matcher(), grammar, seed);
            walk(&vocabulary, &mut other, grammar, seed + 100);
        }
    }
}
