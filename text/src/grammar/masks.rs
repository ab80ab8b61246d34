//! Masks of the tokens that may come next, without going through the whole vocabulary each time.
//!
//! As long as a token ends no lexeme, whether it may come depends on the lexer's state alone. So what
//! is found out about a state serves wherever the lexer comes to it again; there only tokens that
//! would end the lexeme are tried. And where a text may go on with any characters, as in a string,
//! tokens of such characters need not be tried one by one even the first time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use llguidance::derivre::StateID;
use llguidance::earley::{BiasComputer, ParserRecognizer};
use toktrie::{SimpleVob, TokEnv, TokTrie};

use super::word_trie::{reach_of, WordTrie, ENDLESS};

/// Any text of so many characters of prose at most; the last stands for any number. Whether a state
/// goes on with all of it, the lexer can tell from the form of its expressions.
const PROSE: [(u8, &str); 6] = [
    (16, r#"[^"\\\x00-\x1F\x7F]{1,16}"#),
    (24, r#"[^"\\\x00-\x1F\x7F]{1,24}"#),
    (32, r#"[^"\\\x00-\x1F\x7F]{1,32}"#),
    (48, r#"[^"\\\x00-\x1F\x7F]{1,48}"#),
    (ENDLESS, r#"[^"\\\x00-\x1F\x7F]{1,254}"#),
    (ENDLESS, r#"[^"\\\x00-\x1F\x7F]+"#),
];
/// Where it cannot, so many characters are tried one after the other.
const FARTHEST: u8 = 16;
/// Expressions that a question to the lexer may cost.
const QUESTION_EFFORT: u64 = 1000;
/// States after which that many bytes are tried are remembered.
const MANY_BYTES: usize = 1000;
/// So many states are remembered for one lexer, 50 kB each.
const MOST_STATES: usize = 256;

/// The expressions that `MaskComputer` asks lexers for.
pub fn prose_expressions() -> Vec<String> {
    PROSE.iter().map(|(_, text)| (*text).to_owned()).collect()
}

/// The tokens of a vocabulary. Immutable.
pub struct Words {
    environment: TokEnv,
    tree: WordTrie,
    /// Tokens of at most so many characters of prose, in ascending order.
    prose: Vec<(u8, SimpleVob)>,
}

impl Words {
    pub fn new(environment: TokEnv) -> Self {
        let trie = environment.tok_trie();
        let tokens = trie.sorted_tokens();
        let limits = (0..FARTHEST).chain(PROSE.iter().map(|(limit, _)| *limit));
        let mut prose: Vec<(u8, SimpleVob)> = limits
            .map(|limit| (limit, trie.alloc_token_set()))
            .collect();
        for (token, bytes) in &tokens {
            let reach = reach_of(bytes);
            for (limit, set) in &mut prose {
                if reach <= *limit {
                    set.allow_token(*token);
                }
            }
        }
        let words = tokens
            .iter()
            .map(|(token, bytes)| (*token, bytes.as_slice()));
        let tree = WordTrie::new(words);
        Self {
            environment,
            tree,
            prose,
        }
    }

    fn prose(&self, limit: u8) -> &SimpleVob {
        let found = self.prose.partition_point(|(longest, _)| *longest < limit);
        &self.prose[found.min(self.prose.len() - 1)].1
    }
}

/// What is known of a lexer's state.
struct Known {
    /// Tokens that may come, whatever stands before the lexeme.
    accepted: SimpleVob,
    /// Tokens of which that is to be found out.
    others: WordTrie,
}

/// What one character of prose does to a state.
#[derive(Clone)]
enum Step {
    /// Any may come; the states behind them.
    All(Vec<StateID>),
    None,
    Some,
}

/// How many characters of prose may come next.
enum Run {
    /// So many and no more: the text's length is limited.
    Limited(u8),
    /// So many; behind them some may and others not.
    Undecided(u8),
    /// So many and perhaps more of a text whose length is limited.
    Long(u8),
    Endless,
}

#[derive(Clone, Default)]
struct Memory {
    known: AHashMap<u32, Arc<Known>>,
    steps: AHashMap<u32, Step>,
}

/// Computes masks for the texts that share one lexer.
pub struct MaskComputer {
    words: Arc<Words>,
    memory: Mutex<Memory>,
    highest_state: AtomicUsize,
}

impl MaskComputer {
    pub fn new(words: Arc<Words>) -> Self {
        Self {
            words,
            memory: Mutex::default(),
            highest_state: AtomicUsize::new(0),
        }
    }

    /// For a copy of the lexer, whose states are the same as far as they go.
    pub fn fork(&self) -> Self {
        Self {
            words: Arc::clone(&self.words),
            memory: Mutex::new(self.memory().clone()),
            highest_state: AtomicUsize::new(self.highest_state()),
        }
    }

    /// About as many states as the lexer has made.
    pub fn highest_state(&self) -> usize {
        self.highest_state.load(Ordering::Relaxed)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_of_prose(&self, parser: &mut ParserRecognizer<'_>, memory: &mut Memory) -> Run {
        let state = parser.lexer_state();
        if !Trial::sample(parser, state).is_open() {
            return Run::Undecided(0);
        }
        let lexer = parser.lexer_mut();
        let may_ask = lexer.subsume_possible(state);
        let mut goes_on = |index| {
            let answer = lexer.check_subsume(state, index, QUESTION_EFFORT, None);
            answer.unwrap_or(false)
        };
        let any_number = PROSE.len() - 1;
        if may_ask && goes_on(0) {
            if goes_on(any_number) {
                return Run::Endless;
            }
            let most = (0..any_number).rev().find(|index| goes_on(*index));
            return Run::Long(PROSE[most.unwrap_or(0)].0);
        }
        let mut states = vec![state];
        for length in 0..FARTHEST {
            let mut next: Vec<StateID> = Vec::new();
            let mut ended = 0;
            for state in &states {
                let step = memory
                    .steps
                    .entry(state.as_u32())
                    .or_insert_with(|| step(parser, *state));
                match step {
                    Step::All(behind) => next.extend(behind.iter()),
                    Step::None => ended += 1,
                    Step::Some => return Run::Undecided(length),
                }
            }
            if ended == states.len() {
                return Run::Limited(length);
            } else if ended > 0 {
                return Run::Undecided(length);
            }
            next.sort_unstable_by_key(StateID::as_u32);
            next.dedup();
            if next == states {
                return Run::Endless;
            }
            states = next;
        }
        Run::Undecided(FARTHEST)
    }
}

impl BiasComputer for MaskComputer {
    fn compute_bias(&self, parser: &mut ParserRecognizer<'_>, start: &[u8]) -> SimpleVob {
        let mut mask = self.trie().alloc_token_set();
        if !start.is_empty() {
            self.trie().add_bias(parser, &mut mask, start);
            return mask;
        }
        let state = parser.lexer_state();
        self.highest_state
            .fetch_max(state.as_usize(), Ordering::Relaxed);
        let mut memory = self.memory();
        if let Some(known) = memory.known.get(&state.as_u32()) {
            mask.or(&known.accepted);
            known.others.walk(parser, &mut mask, 0);
            return mask;
        }
        let (free, skipped, recurs) = match self.run_of_prose(parser, &mut memory) {
            Run::Limited(length) => (length, ENDLESS, length == 0),
            Run::Undecided(length) => (length, length, true),
            Run::Long(length) => (length, length, false),
            Run::Endless => (ENDLESS, ENDLESS, true),
        };
        let prose = self.words.prose(free);
        mask.or(prose);
        if !recurs || memory.known.len() >= MOST_STATES {
            self.words.tree.walk(parser, &mut mask, skipped);
            return mask;
        }
        let survey = self
            .words
            .tree
            .survey(parser, &mut mask, skipped, prose.clone());
        if survey.walked > MANY_BYTES {
            let trie = self.trie();
            let crossing = survey.crossing.iter();
            let known = Known {
                accepted: survey.accepted,
                others: WordTrie::new(crossing.map(|token| (*token, trie.token(*token)))),
            };
            memory.known.insert(state.as_u32(), Arc::new(known));
        }
        mask
    }

    fn trie(&self) -> &TokTrie {
        self.words.environment.tok_trie()
    }
}

/// Tries every character of prose behind the state, byte by byte.
fn step(parser: &mut ParserRecognizer<'_>, state: StateID) -> Step {
    /// First bytes of characters, the bytes that may follow at once, and how many more do.
    const LONG_CHARACTERS: [(u8, u8, u8, u8, usize); 8] = [
        (0xC2, 0xDF, 0x80, 0xBF, 0),
        (0xE0, 0xE0, 0xA0, 0xBF, 1),
        (0xE1, 0xEC, 0x80, 0xBF, 1),
        (0xED, 0xED, 0x80, 0x9F, 1),
        (0xEE, 0xEF, 0x80, 0xBF, 1),
        (0xF0, 0xF0, 0x90, 0xBF, 2),
        (0xF1, 0xF3, 0x80, 0xBF, 2),
        (0xF4, 0xF4, 0x80, 0x8F, 2),
    ];
    let mut trial = Trial::sample(parser, state);
    if trial.crossed || trial.alive && trial.dead {
        return Step::Some;
    }
    let ascii = (b' '..=b'~').filter(|byte| !matches!(byte, b'"' | b'\\'));
    let mut behind = trial.push(parser, &[state], ascii);
    for (first, last, low, high, more) in LONG_CHARACTERS {
        let mut states = trial.push(parser, &[state], first..=last);
        states = trial.push(parser, &states, low..=high);
        for _ in 0..more {
            states = trial.push(parser, &states, 0x80..=0xBF);
        }
        behind.extend(states);
    }
    behind.sort_unstable_by_key(StateID::as_u32);
    behind.dedup();
    match trial.is_open() {
        true => Step::All(behind),
        false if trial.alive || trial.crossed => Step::Some,
        false => Step::None,
    }
}

/// What came of bytes that were tried.
#[derive(Default)]
struct Trial {
    alive: bool,
    dead: bool,
    /// A byte ended a lexeme, or would.
    crossed: bool,
}

impl Trial {
    /// Tries a few, which is cheaper.
    fn sample(parser: &mut ParserRecognizer<'_>, state: StateID) -> Self {
        let mut trial = Self::default();
        trial.push(parser, &[state], b"a Z9.".iter().copied());
        trial
    }

    /// All that were tried may come.
    fn is_open(&self) -> bool {
        self.alive && !self.dead && !self.crossed
    }

    fn push(
        &mut self,
        parser: &mut ParserRecognizer<'_>,
        states: &[StateID],
        bytes: impl Iterator<Item = u8> + Clone,
    ) -> Vec<StateID> {
        let lexer = parser.lexer_mut();
        let mut found: Vec<StateID> = Vec::new();
        for state in states {
            for byte in bytes.clone() {
                let next = lexer.transition_start_state(*state, Some(byte), &None);
                if next.is_dead() {
                    self.dead = true;
                    self.crossed |= !lexer.try_lexeme_end(*state).is_error();
                } else if next.has_lowest_match() {
                    self.crossed = true;
                } else {
                    self.alive = true;
                    if !found.contains(&next) {
                        found.push(next);
                    }
                }
            }
        }
        found
    }
}
