//! The tokens of a vocabulary as a tree of bytes, which is gone through for a mask.

use llguidance::earley::ParserRecognizer;
use toktrie::{Recognizer, SimpleVob};

const NO_TOKEN: u32 = u32::MAX;
/// The reach of a token that is not all prose.
pub const MIXED: u8 = u8::MAX;
/// More characters of prose than any token has.
pub const ENDLESS: u8 = MIXED - 1;

#[derive(Clone, Copy)]
struct Node {
    token: u32,
    /// The first node behind those below this one.
    end: u32,
    byte: u8,
    /// Bytes from the beginning of the tokens to here.
    depth: u8,
    /// The most characters of a token at or below the node; `MIXED` if one is not all prose.
    reach: u8,
}

/// Nodes in the order of a walk that goes down first. Immutable.
pub struct WordTrie {
    nodes: Vec<Node>,
}

/// What a walk found out about the lexeme that it began in.
pub struct Survey {
    /// Tokens that go on with the lexeme.
    pub accepted: SimpleVob,
    /// Tokens that would end it: whether they may come depends on what stands before.
    pub crossing: Vec<u32>,
    pub walked: usize,
}

/// How many characters of prose the token is, the last of which may be incomplete; `MIXED` for
/// others. Prose is what a string of JSON holds without an escape.
pub fn reach_of(bytes: &[u8]) -> u8 {
    let prose = |text: &str| {
        let plain = text
            .chars()
            .all(|c| c >= ' ' && !matches!(c, '"' | '\\' | '\x7F'));
        plain.then(|| text.chars().count())
    };
    let count = match std::str::from_utf8(bytes) {
        Ok(text) => prose(text),
        Err(error) if error.error_len().is_none() => {
            let whole = std::str::from_utf8(&bytes[..error.valid_up_to()]);
            whole.ok().and_then(prose).map(|count| count + 1)
        }
        Err(_) => None,
    };
    match count {
        Some(count) if count > 0 => count.min(ENDLESS as usize) as u8,
        _ => MIXED,
    }
}

impl WordTrie {
    /// The tokens, of 1 to 255 bytes, must come in the order of a walk that goes down first.
    pub fn new<'a>(tokens: impl Iterator<Item = (u32, &'a [u8])>) -> Self {
        let mut nodes: Vec<Node> = Vec::new();
        let mut path: Vec<usize> = Vec::new();
        let close = |nodes: &mut Vec<Node>, path: &mut Vec<usize>, depth: usize| {
            while path.len() > depth {
                if let Some(last) = path.pop() {
                    nodes[last].end = nodes.len() as u32;
                    let reach = nodes[last].reach;
                    if let Some(above) = path.last() {
                        nodes[*above].reach = nodes[*above].reach.max(reach);
                    }
                }
            }
        };
        for (token, bytes) in tokens {
            let shared = path
                .iter()
                .zip(bytes)
                .take_while(|(place, byte)| nodes[**place].byte == **byte);
            let shared = shared.count().min(bytes.len() - 1);
            close(&mut nodes, &mut path, shared);
            for (depth, byte) in bytes.iter().enumerate().skip(shared) {
                path.push(nodes.len());
                nodes.push(Node {
                    token: NO_TOKEN,
                    end: 0,
                    byte: *byte,
                    depth: depth as u8 + 1,
                    reach: 0,
                });
            }
            if let Some(last) = nodes.last_mut() {
                last.token = token;
                last.reach = reach_of(bytes);
            }
        }
        close(&mut nodes, &mut path, 0);
        Self { nodes }
    }

    /// Sets the bits of the tokens that may come next. Passes over parts of the tree that have no
    /// token of more than `skipped` characters of prose and no other.
    pub fn walk(&self, parser: &mut ParserRecognizer<'_>, mask: &mut SimpleVob, skipped: u8) {
        parser.trie_started("mask");
        let (mut place, mut depth) = (0, 0);
        while let Some(node) = self.nodes.get(place) {
            if node.reach <= skipped {
                place = node.end as usize;
                continue;
            }
            let above = usize::from(node.depth) - 1;
            parser.pop_bytes(depth - above);
            depth = above;
            if !parser.try_push_byte(node.byte) {
                place = node.end as usize;
                continue;
            }
            depth += 1;
            if node.token != NO_TOKEN {
                mask.allow_token(node.token);
            }
            place += 1;
        }
        parser.pop_bytes(depth);
        parser.trie_finished();
    }

    /// The same, and tells apart what the lexer's state alone decides. `accepted`: the tokens that
    /// are passed over and allowed.
    pub fn survey(
        &self,
        parser: &mut ParserRecognizer<'_>,
        mask: &mut SimpleVob,
        skipped: u8,
        accepted: SimpleVob,
    ) -> Survey {
        let mut survey = Survey {
            accepted,
            crossing: Vec::new(),
            walked: 0,
        };
        parser.trie_started("survey");
        let (mut place, mut depth) = (0, 0);
        // The depth at which the walk has left the lexeme; 0: it has not.
        let mut left_at = 0;
        while let Some(node) = self.nodes.get(place) {
            if node.reach <= skipped {
                place = node.end as usize;
                continue;
            }
            let above = usize::from(node.depth) - 1;
            parser.pop_bytes(depth - above);
            depth = above;
            if left_at > depth {
                left_at = 0;
            }
            survey.walked += 1;
            let inside = left_at == 0;
            let state = parser.lexer_state();
            let pushed = parser.try_push_byte(node.byte);
            let crosses = inside && {
                let lexer = parser.lexer_mut();
                let next = lexer.transition_start_state(state, Some(node.byte), &None);
                match next.is_dead() {
                    true => !lexer.try_lexeme_end(state).is_error(),
                    false => next.has_lowest_match(),
                }
            };
            if crosses {
                let below = &self.nodes[place..node.end as usize];
                let tokens = below.iter().map(|node| node.token);
                survey
                    .crossing
                    .extend(tokens.filter(|token| *token != NO_TOKEN));
            }
            if !pushed {
                place = node.end as usize;
                continue;
            }
            depth += 1;
            if crosses {
                left_at = depth;
            }
            if node.token != NO_TOKEN {
                mask.allow_token(node.token);
                if left_at == 0 {
                    survey.accepted.allow_token(node.token);
                }
            }
            place += 1;
        }
        parser.pop_bytes(depth);
        parser.trie_finished();
        survey
    }
}
