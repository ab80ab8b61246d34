//! Compiled grammars, and the state of one text that follows one.

use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::{GrammarWithLexer, TopLevelGrammar};
use llguidance::{Matcher, TokenParser};
use serde_json::Value as Json;

use super::ending::{Ending, Route, DEAD_END};
use super::masks::MaskComputer;
use super::thought::{Marks, Thought};
use super::{gbnf, lark, schema, GrammarVocabulary};
use crate::error::TextError;

/// So many tokens of a text are gone through when a grammar is compiled.
const WARM_TOKENS: usize = 256;

/// Lexers that have made more states than that are not used for another text.
const MOST_LEXER_STATES: usize = 20_000;
/// So many lexers wait for the next text.
const MOST_IDLE: usize = 4;

/// What a grammar is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A JSON schema; the text is JSON.
    JsonSchema,
    /// A regular expression for the whole text.
    Regex,
    /// llguidance's dialect of Lark.
    Lark,
    /// llama.cpp's GBNF.
    Gbnf,
    /// A JSON array of strings, one of which the text is.
    Choice,
}

/// Reasoning before the constrained text, free until it is closed.
#[derive(Clone, Debug, Default)]
pub struct Reasoning {
    /// What opens it; empty when the prompt has already.
    pub open: String,
    /// What closes it.
    pub close: String,
}

/// A text's beginning, whose lexer one text at a time goes on with. A lexer grows by what it finds out
/// about the grammar, so the next text's masks cost less.
struct Beginning {
    matcher: Matcher,
    masks: Arc<MaskComputer>,
}

impl Beginning {
    fn new(mut parser: TokenParser, masks: MaskComputer) -> Self {
        let masks = Arc::new(masks);
        parser.bias_computer = Arc::clone(&masks) as _;
        Self {
            matcher: Matcher::new(Ok(parser)),
            masks,
        }
    }
}

type Idle = Mutex<Vec<Beginning>>;

/// A beginning while its lexer is in use.
struct Lease {
    beginning: Option<Beginning>,
    idle: Arc<Idle>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(beginning) = self.beginning.take() else {
            return;
        };
        // A lexer that has failed fails again.
        let is_sound = beginning.matcher.clone().compute_mask_or_eos().is_ok();
        if is_sound && beginning.masks.highest_state() <= MOST_LEXER_STATES {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < MOST_IDLE {
                idle.push(beginning);
            }
        }
    }
}

/// A compiled grammar. Safe to share between threads.
pub struct Constraint {
    vocabulary: Arc<GrammarVocabulary>,
    /// Never goes on; beginnings are copies of it.
    start: TokenParser,
    masks: Arc<MaskComputer>,
    idle: Arc<Idle>,
    /// Of the reasoning that goes before.
    marks: Option<Arc<Marks>>,
    text_close: Arc<[u32]>,
    route: Route,
}

impl Constraint {
    /// `text_close` is what ends free text without quotes in the grammar, for texts with a limit;
    /// empty when there is no such text.
    pub fn compile(
        vocabulary: Arc<GrammarVocabulary>,
        source: Source,
        text: &str,
        reasoning: Option<&Reasoning>,
        text_close: &str,
    ) -> Result<Self, TextError> {
        let mut grammar = parse(source, text)?;
        let mut marks = None;
        if let Some(reasoning) = reasoning {
            grammar = follow_reasoning(&vocabulary, reasoning, grammar);
            marks = Some(Arc::new(Marks::new(vocabulary.tokenizer(), reasoning)?));
        }
        let parser = vocabulary.factory().create_parser(grammar);
        let mut start = parser.map_err(refuse)?;
        start.start_without_prompt();
        let Beginning { matcher, masks } =
            Beginning::new(start.clone(), MaskComputer::new(vocabulary.words()));
        // This kind of clone leaves what it learns to the original.
        matcher.clone().compute_mask_or_eos().map_err(refuse)?;
        let text_close: Arc<[u32]> = vocabulary.tokenize_markup(text_close).into();
        // Going to the end leaves the states of the lexer that it comes by to the texts, whose first
        // masks at each place would be slow without.
        let thought = Thought::new(marks.clone());
        let route = vocabulary
            .ending_table()
            .shorter_route(&matcher, &thought, &text_close, WARM_TOKENS)
            .map_err(refuse)?;
        Ok(Self {
            vocabulary,
            start,
            masks,
            idle: Arc::default(),
            marks,
            text_close,
            route,
        })
    }

    /// A new text's state. What one text does never changes what another may do.
    pub fn matcher(&self) -> ConstraintMatcher {
        let waiting = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.pop()
        };
        let beginning =
            waiting.unwrap_or_else(|| Beginning::new(self.start.deep_clone(), self.masks.fork()));
        ConstraintMatcher {
            inner: beginning.matcher.clone(),
            _lease: Arc::new(Lease {
                beginning: Some(beginning),
                idle: Arc::clone(&self.idle),
            }),
            vocabulary: Arc::clone(&self.vocabulary),
            thought: Thought::new(self.marks.clone()),
            text_close: Arc::clone(&self.text_close),
            route: self.route,
            ending: None,
        }
    }
}

/// How far a text has come; for one thread at a time.
#[derive(Clone)]
pub struct ConstraintMatcher {
    inner: Matcher,
    _lease: Arc<Lease>,
    vocabulary: Arc<GrammarVocabulary>,
    thought: Thought,
    text_close: Arc<[u32]>,
    route: Route,
    /// Set when the text has a limit.
    ending: Option<Ending>,
}

impl ConstraintMatcher {
    /// At most so many tokens may follow: from now on masks see to it that the text is complete by
    /// then, if it can be.
    pub fn limit(&mut self, tokens: usize) {
        self.ending = Some(Ending::new(
            self.vocabulary.ending_table(),
            Arc::clone(&self.text_close),
            self.route,
            tokens,
        ));
    }

    /// Sets bit i of `words` where token i may come next; when the text is complete, the end
    /// tokens' bits alone.
    pub fn mask(&mut self, words: &mut [u32]) -> Result<(), TextError> {
        let width = self.vocabulary.width() as usize;
        if words.len() != width.div_ceil(32) {
            return Err(TextError::failed(format!(
                "a mask of {width} tokens does not have {} words",
                words.len()
            )));
        }
        let mask = self.inner.compute_mask_or_eos().map_err(refuse)?;
        words.copy_from_slice(&mask.as_slice()[..words.len()]);
        if !width.is_multiple_of(32) {
            if let Some(last) = words.last_mut() {
                *last &= (1 << (width % 32)) - 1;
            }
        }
        if let Some(ending) = &mut self.ending {
            ending.narrow(&self.inner, &self.thought, words);
        }
        Ok(())
    }

    /// Goes on by a token that the mask allows.
    pub fn commit(&mut self, id: u32) -> Result<(), TextError> {
        self.inner.consume_token(id).map_err(refuse)?;
        self.thought.commit(id);
        if let Some(ending) = &mut self.ending {
            ending.commit(id);
        }
        Ok(())
    }

    /// Takes the last `count` tokens back.
    pub fn rollback(&mut self, count: usize) -> Result<(), TextError> {
        self.inner.rollback(count).map_err(refuse)?;
        self.thought.rollback(count);
        if let Some(ending) = &mut self.ending {
            ending.rollback(count);
        }
        Ok(())
    }

    /// Nothing can follow: the text is complete.
    pub fn stopped(&self) -> bool {
        self.inner.is_stopped()
    }

    /// The text may end here.
    pub fn accepting(&mut self) -> Result<bool, TextError> {
        Ok(self.inner.is_stopped() || self.inner.is_accepting().map_err(refuse)?)
    }
}

/// The grammar as llguidance takes it.
pub fn parse(source: Source, text: &str) -> Result<TopLevelGrammar, TextError> {
    Ok(match source {
        Source::JsonSchema => TopLevelGrammar::from_json_schema(schema::read(text)?),
        Source::Regex => TopLevelGrammar::from_regex(unanchored(text)),
        Source::Lark => TopLevelGrammar::from_lark(lark::prepare(text)?),
        Source::Gbnf => TopLevelGrammar::from_lark(gbnf::to_lark(text)?),
        Source::Choice => TopLevelGrammar::from_lark(choice(text)?),
    })
}

/// The anchors around an expression for the whole text say nothing.
fn unanchored(regex: &str) -> &str {
    let regex = regex.strip_prefix('^').unwrap_or(regex);
    match regex.strip_suffix('$') {
        Some(rest) if rest.chars().rev().take_while(|c| *c == '\\').count() % 2 == 0 => rest,
        _ => regex,
    }
}

fn choice(text: &str) -> Result<String, TextError> {
    let options: Vec<String> = serde_json::from_str(text)
        .map_err(|error| TextError::refused(format!("choices are not strings: {error}")))?;
    if options.is_empty() {
        return Err(TextError::refused("there are no choices"));
    }
    let options: Vec<String> = options
        .into_iter()
        .map(|option| Json::from(option).to_string())
        .collect();
    Ok(format!("start: CHOICE\nCHOICE: {}\n", options.join(" | ")))
}

/// A grammar of free text up to the end of the reasoning, then `body`.
fn follow_reasoning(
    vocabulary: &GrammarVocabulary,
    reasoning: &Reasoning,
    mut body: TopLevelGrammar,
) -> TopLevelGrammar {
    let close = vocabulary.reference(&reasoning.close);
    let thought = if close.starts_with('<') {
        format!("thought: /(?s:.*)/ {close}\n")
    } else {
        let pattern = format!("(?s:.*){}", escape_regex(&reasoning.close));
        let pattern = llguidance::regex_to_lark(&pattern, "");
        format!("thought[lazy]: /{pattern}/\n")
    };
    let start = if reasoning.open.is_empty() {
        "start: thought GAP? @body\n".to_owned()
    } else {
        let open = vocabulary.reference(&reasoning.open);
        format!("start: ({open} thought GAP?)? @body\n")
    };
    let wrapper = format!("{start}{thought}GAP: /[ \\n]{{1,8}}/\n");
    body.grammars[0].name = Some("body".to_owned());
    body.grammars
        .insert(0, GrammarWithLexer::from_lark(wrapper));
    body
}

/// The expression that matches `text` alone.
pub(super) fn escape_regex(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escapable(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Whether a backslash makes the character stand for itself; `\<` and `\>` are word boundaries.
pub(super) fn is_escapable(character: char) -> bool {
    character.is_ascii_punctuation() && !matches!(character, '<' | '>')
}

fn refuse(error: impl std::fmt::Display) -> TextError {
    TextError::refused(describe(&error.to_string()))
}

/// llguidance's message without the sections it adds for its developers.
fn describe(message: &str) -> String {
    if message.contains(DEAD_END) {
        return "no text fits the grammar; perhaps it refers to itself without an end".to_owned();
    }
    let end = message
        .find("\n<non-verbose/>")
        .or_else(|| message.find("\n<state>"))
        .unwrap_or(message.len());
    message[..end].trim_end().to_owned()
}
