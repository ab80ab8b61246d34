//! What `tokenizer.ggml.pre` stands for: how a byte-level vocabulary's text is normalized and cut
//! before merging.

use serde_json::{json, Value};

/// One step of cutting a text.
enum Cut {
    /// Matches become pieces of their own.
    Split(&'static str),
    /// Digits one by one.
    Digits,
    /// Runs of digits.
    DigitRuns,
    /// Runs of punctuation.
    Punctuation,
    /// GPT-2's expression, part of the byte-level step.
    Gpt2,
}

/// The rules of one `pre` name.
pub struct PreTokenizer {
    cuts: &'static [Cut],
    pub normalize_nfc: bool,
    /// A piece that is in the vocabulary is one token, whatever the merges say.
    pub ignore_merges: bool,
    /// Whether a beginning-of-text token is added when the file does not say.
    pub add_bos: bool,
}

const CONTRACTIONS_LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CONTRACTIONS_QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MARKS_QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CASES_GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CASES_TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const WORDS_DEEPSEEK3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const WORDS_BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";

const GPT2: &[Cut] = &[Cut::Gpt2];
const DIGITS_GPT2: &[Cut] = &[Cut::Digits, Cut::Gpt2];
const LLAMA3: &[Cut] = &[Cut::Split(CONTRACTIONS_LLAMA3)];
const QWEN2: &[Cut] = &[Cut::Split(CONTRACTIONS_QWEN2)];

const fn plain(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        cuts,
        normalize_nfc: false,
        ignore_merges: false,
        add_bos: false,
    }
}

const fn composed(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        normalize_nfc: true,
        ..plain(cuts)
    }
}

const fn whole_words(cuts: &'static [Cut], add_bos: bool) -> PreTokenizer {
    PreTokenizer {
        ignore_merges: true,
        add_bos,
        ..plain(cuts)
    }
}

/// `None` for a name this library does not know.
pub fn find(name: &str) -> Option<PreTokenizer> {
    let rules = match name {
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v1-en" | "jina-v2-es" | "jina-v2-de"
        | "jina-v2-code" | "roberta-bpe" | "gigachat" | "a.x-4.0" | "mellum" | "modern-bert"
        | "jais" | "exaone4" | "codeshell-gpt2" => plain(GPT2),
        "mpt" | "olmo" => composed(GPT2),
        "smollm" | "starcoder" | "refact" | "codeshell" | "exaone" | "minerva-7b" => {
            plain(DIGITS_GPT2)
        }
        "command-r" => composed(DIGITS_GPT2),
        "falcon" => plain(&[
            Cut::Punctuation,
            Cut::Gpt2,
            Cut::DigitRuns,
            Cut::Split("[0-9][0-9][0-9]"),
        ]),
        "llama-bpe" | "llama3" | "llama-v3" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0"
        | "lfm2" => whole_words(LLAMA3, true),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" | "glm4" | "seed-coder" => plain(LLAMA3),
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "megrez" | "kormo"
        | "solar-open" | "hunyuan-dense" => composed(QWEN2),
        "qwen35" => composed(&[Cut::Split(MARKS_QWEN35)]),
        "gpt-4o" | "llama4" => plain(&[Cut::Split(CASES_GPT4O)]),
        "tekken" => whole_words(&[Cut::Split(CASES_TEKKEN)], true),
        "deepseek-coder" => plain(&[
            Cut::Split(r"[\r\n]"),
            Cut::Split(r"\s?\p{L}+"),
            Cut::Split(r"\s?\p{P}+"),
            Cut::Split("[一-龥ࠀ-一가-퟿]+"),
            Cut::Digits,
        ]),
        "deepseek-v3" => plain(&[
            Cut::Split(r"\p{N}{1,3}"),
            Cut::Split("[一-龥぀-ゟ゠-ヿ]+"),
            Cut::Split(WORDS_DEEPSEEK3),
        ]),
        "bloom" | "gpt3-finnish" => plain(&[Cut::Split(WORDS_BLOOM)]),
        "poro-chat" | "viking" => plain(&[Cut::Split(WORDS_BLOOM), Cut::Digits]),
        _ => return None,
    };
    Some(rules)
}

impl PreTokenizer {
    /// As `tokenizer.json` writes it.
    pub fn to_json(&self) -> Value {
        let mut steps: Vec<Value> = Vec::new();
        let mut byte_level_done = false;
        for cut in self.cuts {
            steps.push(match cut {
                Cut::Split(pattern) => json!({
                    "type": "Split",
                    "pattern": {"Regex": pattern},
                    "behavior": "Isolated",
                    "invert": false
                }),
                Cut::Digits => json!({"type": "Digits", "individual_digits": true}),
                Cut::DigitRuns => json!({"type": "Digits", "individual_digits": false}),
                Cut::Punctuation => json!({"type": "Punctuation", "behavior": "Contiguous"}),
                Cut::Gpt2 => {
                    byte_level_done = true;
                    byte_level(true)
                }
            });
        }
        if !byte_level_done {
            steps.push(byte_level(false));
        }
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": use_regex
    })
}
