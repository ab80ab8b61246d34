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
    /// Whether the separator is added at the end when the file does not say.
    pub separated: bool,
}

const CONTRACTIONS_LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CONTRACTIONS_QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MARKS_QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CASES_GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CASES_TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const WORDS_DEEPSEEK3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";
const WORDS_BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";
const CASES_MARKS: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CASES_KIMI: &str = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DIGITS_FROM_THE_END: &str = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))";
const CONTRACTIONS_JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const CONTRACTIONS_BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const CONTRACTIONS_SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const CONTRACTIONS_MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const PHRASES_EXAONE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const WORDS_UFAKZEKA: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const WORDS_SPARK: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+";
const SCRIPTS_YOUTU: &str = "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+";
const SCRIPTS_AFMOE: &str = "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+";
const LETTERS_DEEPSEEK: &str = "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
const PUNCTUATION_DEEPSEEK: &str = "\\s?[!-/:-~！-／：-～‘-‟　-。]+";
const LINES: &str = r"[^\n]+|[\n]+";
const CJK: &str = "[一-龥぀-ゟ゠-ヿ]+";

const GPT2: &[Cut] = &[Cut::Gpt2];
const DIGITS_GPT2: &[Cut] = &[Cut::Digits, Cut::Gpt2];
const LLAMA3: &[Cut] = &[Cut::Split(CONTRACTIONS_LLAMA3)];
const QWEN2: &[Cut] = &[Cut::Split(CONTRACTIONS_QWEN2)];
const GPT4O: &[Cut] = &[Cut::Split(CASES_GPT4O)];
const DEEPSEEK3: &[Cut] = &[
    Cut::Split(r"\p{N}{1,3}"),
    Cut::Split(CJK),
    Cut::Split(WORDS_DEEPSEEK3),
];

const fn plain(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        cuts,
        normalize_nfc: false,
        ignore_merges: false,
        add_bos: false,
        separated: false,
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

/// RoBERTa's: a text stands between the beginning and the separator.
const fn separated(cuts: &'static [Cut]) -> PreTokenizer {
    PreTokenizer {
        add_bos: true,
        separated: true,
        ..plain(cuts)
    }
}

/// Names whose vocabularies are spelt as SentencePiece's: whole UTF-8 characters, U+2581 for spaces.
pub fn is_metaspace(name: &str) -> bool {
    matches!(name, "gemma4" | "granite-embed-multi-311m" | "sarvam-moe")
}

/// `None` for a name this library does not know.
pub fn find(name: &str) -> Option<PreTokenizer> {
    let rules = match name {
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "jina-v2-es" | "jina-v2-de" | "gigachat"
        | "a.x-4.0" | "mellum" | "modern-bert" | "jais" | "exaone4" | "codeshell-gpt2"
        | "trillion" | "granite-docling" => plain(GPT2),
        "jina-v1-en" | "jina-v2-code" | "roberta-bpe" => separated(GPT2),
        "mpt" | "olmo" => composed(GPT2),
        "smollm" | "starcoder" | "refact" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
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
        | "lfm2" | "jina-v5-nano" => whole_words(LLAMA3, true),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => plain(LLAMA3),
        "glm4" | "glm5" => whole_words(LLAMA3, false),
        "minicpm5" => whole_words(
            &[Cut::Split(r"\p{N}{1,3}"), Cut::Split(CONTRACTIONS_MINICPM5)],
            false,
        ),
        "jais-2" => plain(&[Cut::Split(CONTRACTIONS_JAIS2)]),
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "megrez" | "kormo"
        | "solar-open" | "f2llmv2" => composed(QWEN2),
        "grok-2" => plain(QWEN2),
        "laguna" => plain(&[Cut::Split(LINES), Cut::Split(CONTRACTIONS_QWEN2)]),
        "qwen35" => composed(&[Cut::Split(MARKS_QWEN35)]),
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => plain(GPT4O),
        "granite-embed-multi-97m" => whole_words(GPT4O, false),
        "tiny_aya" | "cohere2moe" => composed(&[
            Cut::Split(r"\d{1,3}(?=(?:\d{3})*\b)"),
            Cut::Split(CASES_GPT4O),
        ]),
        "tekken" => whole_words(&[Cut::Split(CASES_TEKKEN)], true),
        "kimi-k2" => whole_words(&[Cut::Split(CASES_KIMI)], false),
        "youtu" => whole_words(&[Cut::Split(SCRIPTS_YOUTU), Cut::Split(CASES_MARKS)], false),
        "bailingmoe" | "bailingmoe2" | "llada-moe" => plain(&[Cut::Split(CONTRACTIONS_BAILING)]),
        "seed-coder" => plain(&[Cut::Split(CONTRACTIONS_SEED)]),
        "ufakzeka" => plain(&[Cut::Split(WORDS_UFAKZEKA)]),
        "exaone-moe" => plain(&[Cut::Split(PHRASES_EXAONE)]),
        "superbpe" => plain(&[Cut::Split(r"\p{N}+"), Cut::Split(r"(?=(\d{3})+(?!\d))")]),
        "chameleon" => PreTokenizer {
            add_bos: true,
            ..plain(&[
                Cut::Split("<sentinel:[0-9]+>"),
                Cut::Split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
                Cut::Split(r"([\t\n]|    |  )"),
                Cut::Digits,
                Cut::Split(r"[\p{P}!-/:-@\[-`{-~]"),
                Cut::Gpt2,
            ])
        },
        "deepseek-llm" => plain(&[
            Cut::Split(r"[\r\n]"),
            Cut::Split(LETTERS_DEEPSEEK),
            Cut::Split(PUNCTUATION_DEEPSEEK),
            Cut::Split(r"\s+$"),
            Cut::Split("[一-龥ࠀ-一가-\u{d7ff}]+"),
            Cut::Digits,
        ]),
        "deepseek-coder" => plain(&[
            Cut::Split(r"[\r\n]"),
            Cut::Split(r"\s?\p{L}+"),
            Cut::Split(r"\s?\p{P}+"),
            Cut::Split("[一-龥ࠀ-一가-\u{d7ff}]+"),
            Cut::Digits,
        ]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => plain(DEEPSEEK3),
        "spark2_5" => plain(&[
            Cut::Split(r"\p{N}{1,3}"),
            Cut::Split(CJK),
            Cut::Split(WORDS_SPARK),
            Cut::Digits,
        ]),
        "afmoe" => plain(&[
            Cut::Split(DIGITS_FROM_THE_END),
            Cut::Split(SCRIPTS_AFMOE),
            Cut::Split(WORDS_DEEPSEEK3),
        ]),
        "bloom" | "gpt3-finnish" | "poro-chat" => plain(&[Cut::Split(WORDS_BLOOM)]),
        "viking" => plain(&[Cut::Split(WORDS_BLOOM), Cut::Digits]),
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

/// Words that an expression matches, as `tokenizer.json` writes it.
pub fn split_by(pattern: &str) -> Value {
    let split = json!({
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": false
    });
    json!({"type": "Sequence", "pretokenizers": [split, byte_level(false)]})
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel",
        "add_prefix_space": false,
        "trim_offsets": true,
        "use_regex": use_regex
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::PreTokenizerWrapper;

    /// The names that llama.cpp's converter gives, with those that its loader accepts beside them.
    const NAMES: &str = "gpt-2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code \
        jina-v5-nano roberta-bpe gigachat a.x-4.0 mellum mellum2 modern-bert jais jais-2 exaone \
        exaone4 exaone-moe trillion granite-docling mpt olmo smollm starcoder refact codeshell \
        minerva-7b command-r falcon llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 \
        lfm2 dbrx smaug-bpe chatglm-bpe glm4 glm5 minicpm5 qwen2 deepseek-r1-qwen stablelm2 hunyuan \
        megrez kormo solar-open f2llmv2 grok-2 laguna qwen35 gpt-4o llama4 kanana2 talkie minimax-m2 \
        granite-embed-multi-97m tiny_aya cohere2moe tekken kimi-k2 youtu bailingmoe bailingmoe2 \
        llada-moe seed-coder ufakzeka superbpe chameleon deepseek-llm deepseek-coder deepseek-v3 \
        hunyuan-dense joyai-llm hy_v4 spark2_5 afmoe bloom gpt3-finnish poro-chat viking";

    #[test]
    fn every_name_in_use_is_known() {
        for name in NAMES.split_whitespace() {
            let rules = find(name).unwrap_or_else(|| panic!("{name} is unknown"));
            let built: Result<PreTokenizerWrapper, _> = serde_json::from_value(rules.to_json());
            assert!(built.is_ok(), "{name}: {built:?}");
        }
        for name in ["gemma4", "granite-embed-multi-311m", "sarvam-moe"] {
            assert!(is_metaspace(name));
        }
        assert!(find("nonesuch").is_none());
    }

    #[test]
    fn digits_are_grouped_from_the_end() {
        use tokenizers::tokenizer::pre_tokenizer::PreTokenizedString;
        use tokenizers::{OffsetReferential, OffsetType, PreTokenizer as _};
        let built: PreTokenizerWrapper =
            serde_json::from_value(find("afmoe").unwrap().to_json()).unwrap();
        let mut pieces = PreTokenizedString::from("1234567 12345");
        built.pre_tokenize(&mut pieces).unwrap();
        let found: Vec<&str> = pieces
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(piece, _, _)| piece)
            .collect();
        assert_eq!(found, ["1", "234", "567", "Ġ", "12", "345"]);
    }
}
