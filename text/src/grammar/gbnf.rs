//! llama.cpp's grammar notation, turned into Lark.
//!
//! GBNF describes texts character by character; llguidance wants terminals, which it matches
//! greedily. A rule that does not reach itself becomes one terminal, exactly. In the others each run
//! of such parts becomes a terminal.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::constraint::{escape_regex, is_escapable};
use crate::error::TextError;

const DEPTH_LIMIT: usize = 200;
const TERMINAL_LIMIT: usize = 1 << 20;

#[derive(Clone, Debug)]
enum Node {
    /// A regular expression, in a form that can be followed by a repetition.
    Terminal(String),
    Rule(String),
    /// A special token, as Lark writes it.
    Token(String),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// The Lark grammar with the same texts.
pub fn to_lark(text: &str) -> Result<String, TextError> {
    let rules = Parser::new(text).rules()?;
    if !rules.contains_key("root") {
        return Err(TextError::refused("the grammar has no rule named root"));
    }
    Converter::new(rules).convert()
}

struct Parser<'a> {
    text: &'a str,
    position: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            position: 0,
            depth: 0,
        }
    }

    fn rules(mut self) -> Result<BTreeMap<String, Node>, TextError> {
        let mut rules: BTreeMap<String, Node> = BTreeMap::new();
        self.skip_space(true);
        while self.position < self.text.len() {
            let name = self.name()?;
            self.skip_space(false);
            if !self.take("::=") {
                return Err(self.error("::= is expected"));
            }
            self.skip_space(true);
            let body = self.choice(false)?;
            if !self.at_end_of_rule() {
                return Err(self.error("the end of the rule is expected"));
            }
            if rules.insert(name.clone(), body).is_some() {
                return Err(self.error(&format!("the rule {name} is defined twice")));
            }
            self.skip_space(true);
        }
        Ok(rules)
    }

    fn at_end_of_rule(&self) -> bool {
        self.rest().is_empty() || self.rest().starts_with(['\n', '\r'])
    }

    fn choice(&mut self, nested: bool) -> Result<Node, TextError> {
        self.depth += 1;
        if self.depth > DEPTH_LIMIT {
            return Err(self.error("parentheses are nested too deeply"));
        }
        let mut options = vec![self.sequence(nested)?];
        while self.take("|") {
            self.skip_space(true);
            options.push(self.sequence(nested)?);
        }
        self.depth -= 1;
        Ok(match options.len() {
            1 => options.remove(0),
            _ => Node::Choice(options),
        })
    }

    fn sequence(&mut self, nested: bool) -> Result<Node, TextError> {
        let mut items: Vec<Node> = Vec::new();
        while let Some(item) = self.item()? {
            self.skip_space(nested);
            let item = self.repetitions(item, nested)?;
            items.push(item);
        }
        Ok(match items.len() {
            1 => items.remove(0),
            _ => Node::Sequence(items),
        })
    }

    fn item(&mut self) -> Result<Option<Node>, TextError> {
        let Some(first) = self.rest().chars().next() else {
            return Ok(None);
        };
        Ok(Some(match first {
            '"' => self.literal()?,
            '[' => self.class()?,
            '.' => {
                self.position += 1;
                Node::Terminal("(?s:.)".to_owned())
            }
            '(' => {
                self.position += 1;
                self.skip_space(true);
                let inner = self.choice(true)?;
                if !self.take(")") {
                    return Err(self.error("a closing parenthesis is expected"));
                }
                inner
            }
            '<' => self.token()?,
            '!' => return Err(self.error("tokens that must not come are not supported")),
            c if is_name(c) => Node::Rule(self.name()?),
            _ => return Ok(None),
        }))
    }

    fn repetitions(&mut self, item: Node, nested: bool) -> Result<Node, TextError> {
        let mut item = item;
        loop {
            let (least, most) = match self.rest().chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.bounds()?,
                _ => return Ok(item),
            };
            self.position += 1;
            self.skip_space(nested);
            item = Node::Repeat(Box::new(item), least, most);
        }
    }

    /// Reads `{m,n}` up to its closing brace.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), TextError> {
        let end = self
            .rest()
            .find('}')
            .ok_or_else(|| self.error("} is expected"))?;
        let inner = &self.rest()[1..end];
        let number = |text: &str| {
            text.trim()
                .parse::<u32>()
                .map_err(|_| self.error("a number is expected in the repetition"))
        };
        let bounds = match inner.split_once(',') {
            None => {
                let count = number(inner)?;
                (count, Some(count))
            }
            Some((least, most)) => {
                let least = if least.trim().is_empty() {
                    0
                } else {
                    number(least)?
                };
                let most = if most.trim().is_empty() {
                    None
                } else {
                    Some(number(most)?)
                };
                (least, most)
            }
        };
        if bounds.1.is_some_and(|most| most < bounds.0) {
            return Err(self.error("the repetition's bounds are in the wrong order"));
        }
        self.position += end;
        Ok(bounds)
    }

    fn literal(&mut self) -> Result<Node, TextError> {
        self.position += 1;
        let mut text = String::new();
        loop {
            match self.rest().chars().next() {
                None | Some('\n') => return Err(self.error("a string does not end")),
                Some('"') => break,
                Some(_) => text.push(self.character()?),
            }
        }
        self.position += 1;
        if text.is_empty() {
            return Ok(Node::Sequence(Vec::new()));
        }
        Ok(Node::Terminal(format!("(?:{})", escape_regex(&text))))
    }

    fn class(&mut self) -> Result<Node, TextError> {
        self.position += 1;
        let mut class = String::from("[");
        if self.take("^") {
            class.push('^');
        }
        let mut empty = true;
        loop {
            match self.rest().chars().next() {
                None | Some('\n') => return Err(self.error("a character class does not end")),
                Some(']') => break,
                Some(_) => {}
            }
            let first = self.character()?;
            push_class_character(&mut class, first);
            empty = false;
            let is_range = self.rest().starts_with('-') && !self.rest().starts_with("-]");
            if is_range {
                self.position += 1;
                let last = self.character()?;
                if last < first {
                    return Err(self.error("a range's ends are in the wrong order"));
                }
                class.push('-');
                push_class_character(&mut class, last);
            }
        }
        self.position += 1;
        if empty {
            return Err(self.error("a character class is empty"));
        }
        class.push(']');
        Ok(Node::Terminal(class))
    }

    /// A character of a literal or class, escapes read.
    fn character(&mut self) -> Result<char, TextError> {
        let first = self.next_character()?;
        if first != '\\' {
            return Ok(first);
        }
        let digits = match self.next_character()? {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            other if other.is_ascii_punctuation() => return Ok(other),
            _ => return Err(self.error("an unknown escape")),
        };
        let code = self
            .rest()
            .get(..digits)
            .and_then(|hex| u32::from_str_radix(hex, 16).ok())
            .and_then(char::from_u32);
        let Some(character) = code else {
            return Err(self.error("an escape that is no character"));
        };
        self.position += digits;
        Ok(character)
    }

    fn next_character(&mut self) -> Result<char, TextError> {
        let Some(character) = self.rest().chars().next() else {
            return Err(self.error("more is expected"));
        };
        self.position += character.len_utf8();
        Ok(character)
    }

    fn token(&mut self) -> Result<Node, TextError> {
        let end = self
            .rest()
            .find('>')
            .ok_or_else(|| self.error("> is expected"))?;
        let token = self.rest()[..=end].to_owned();
        self.position += end + 1;
        Ok(Node::Token(token))
    }

    fn name(&mut self) -> Result<String, TextError> {
        let length = self
            .rest()
            .find(|c| !is_name(c))
            .unwrap_or(self.rest().len());
        if length == 0 {
            return Err(self.error("a rule's name is expected"));
        }
        let name = self.rest()[..length].to_owned();
        self.position += length;
        Ok(name)
    }

    fn skip_space(&mut self, lines: bool) {
        loop {
            match self.rest().chars().next() {
                Some(' ' | '\t') => self.position += 1,
                Some('\n' | '\r') if lines => self.position += 1,
                Some('#') => {
                    let length = self.rest().find('\n').unwrap_or(self.rest().len());
                    self.position += length;
                }
                _ => return,
            }
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.position += text.len();
        }
        found
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn error(&self, problem: &str) -> TextError {
        let line = self.text[..self.position].matches('\n').count() + 1;
        TextError::refused(format!("line {line} of the grammar: {problem}"))
    }
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '_'
}

fn push_class_character(class: &mut String, character: char) {
    if is_escapable(character) {
        class.push('\\');
    }
    class.push(character);
}

struct Converter {
    rules: BTreeMap<String, Node>,
    /// Expressions of the rules that are regular.
    regular: BTreeMap<String, String>,
    names: BTreeMap<String, String>,
    terminals: Vec<String>,
}

impl Converter {
    fn new(rules: BTreeMap<String, Node>) -> Self {
        let names = rules
            .keys()
            .enumerate()
            .map(|(index, name)| (name.clone(), format!("r{index}")))
            .collect();
        Self {
            rules,
            regular: BTreeMap::new(),
            names,
            terminals: Vec::new(),
        }
    }

    fn convert(mut self) -> Result<String, TextError> {
        let names: Vec<String> = self.rules.keys().cloned().collect();
        for name in &names {
            self.settle(name, &mut BTreeSet::new())?;
        }
        let mut lark = String::new();
        for name in &names {
            if *name != "root" && self.regular.contains_key(name) {
                continue;
            }
            let body = self.rules[name].clone();
            let body = self.rule_body(&body)?;
            let rule = if name == "root" {
                format!("start: {body}\n")
            } else {
                format!("{}: {body}\n", self.names[name])
            };
            lark.push_str(&rule);
            if name == "root" {
                let _ = writeln!(lark, "{}: start", self.names[name]);
            }
        }
        for (index, terminal) in self.terminals.iter().enumerate() {
            let pattern = llguidance::regex_to_lark(terminal, "");
            let _ = writeln!(lark, "T{index}: /{pattern}/");
        }
        Ok(lark)
    }

    /// Finds the expression of a rule, if it is regular; `open` are the rules being settled.
    fn settle(&mut self, name: &str, open: &mut BTreeSet<String>) -> Result<bool, TextError> {
        if self.regular.contains_key(name) {
            return Ok(true);
        }
        if open.len() > DEPTH_LIMIT {
            return Err(TextError::refused(
                "the grammar's rules are nested too deeply",
            ));
        }
        let Some(body) = self.rules.get(name).cloned() else {
            return Err(TextError::refused(format!(
                "the grammar has no rule named {name}"
            )));
        };
        if !open.insert(name.to_owned()) {
            return Ok(false);
        }
        let mut named = BTreeSet::new();
        collect_rules(&body, &mut named);
        let mut regular = !has_tokens(&body);
        for inner in named {
            regular &= self.settle(&inner, open)?;
        }
        open.remove(name);
        if regular {
            let expression = self.expression(&body).unwrap_or_default();
            if expression.len() > TERMINAL_LIMIT {
                return Err(TextError::refused(format!(
                    "the grammar's rule {name} is too large"
                )));
            }
            self.regular.insert(name.to_owned(), expression);
        }
        Ok(regular)
    }

    /// The regular expression of a node, if all rules in it are regular.
    fn expression(&self, node: &Node) -> Option<String> {
        Some(match node {
            Node::Terminal(expression) => expression.clone(),
            Node::Token(_) => return None,
            Node::Rule(name) => self.regular.get(name)?.clone(),
            Node::Sequence(items) => {
                let parts: Option<String> =
                    items.iter().map(|item| self.expression(item)).collect();
                format!("(?:{})", parts?)
            }
            Node::Choice(options) => {
                let parts: Option<Vec<String>> = options
                    .iter()
                    .map(|option| self.expression(option))
                    .collect();
                format!("(?:{})", parts?.join("|"))
            }
            Node::Repeat(inner, least, most) => {
                let inner = self.expression(inner)?;
                let most = most.map_or(String::new(), |most| most.to_string());
                format!("(?:(?:{inner}){{{least},{most}}})")
            }
        })
    }

    fn rule_body(&mut self, node: &Node) -> Result<String, TextError> {
        if let Some(expression) = self.expression(node) {
            return Ok(self.terminal(expression));
        }
        Ok(match node {
            Node::Terminal(expression) => self.terminal(expression.clone()),
            Node::Token(token) => token.clone(),
            Node::Rule(name) => self.names[name].clone(),
            Node::Sequence(items) => self.sequence_body(items)?,
            Node::Choice(options) => {
                let mut parts = Vec::with_capacity(options.len());
                for option in options {
                    parts.push(self.rule_body(option)?);
                }
                format!("({})", parts.join(" | "))
            }
            Node::Repeat(inner, least, most) => {
                let inner = self.rule_body(inner)?;
                let most = most.map_or(String::new(), |most| most.to_string());
                format!("({inner}){{{least},{most}}}")
            }
        })
    }

    /// Neighbouring regular items become one terminal.
    fn sequence_body(&mut self, items: &[Node]) -> Result<String, TextError> {
        let mut parts = Vec::new();
        let mut run = String::new();
        for item in items {
            match self.expression(item) {
                Some(expression) => run.push_str(&expression),
                None => {
                    if !run.is_empty() {
                        parts.push(self.terminal(std::mem::take(&mut run)));
                    }
                    parts.push(self.rule_body(item)?);
                }
            }
        }
        if !run.is_empty() {
            parts.push(self.terminal(run));
        }
        Ok(format!("({})", parts.join(" ")))
    }

    fn terminal(&mut self, expression: String) -> String {
        let known = self.terminals.iter().position(|other| *other == expression);
        let index = known.unwrap_or_else(|| {
            self.terminals.push(expression);
            self.terminals.len() - 1
        });
        format!("T{index}")
    }
}

fn collect_rules(node: &Node, names: &mut BTreeSet<String>) {
    match node {
        Node::Rule(name) => {
            names.insert(name.clone());
        }
        Node::Sequence(items) | Node::Choice(items) => {
            for item in items {
                collect_rules(item, names);
            }
        }
        Node::Repeat(inner, _, _) => collect_rules(inner, names),
        Node::Terminal(_) | Node::Token(_) => {}
    }
}

fn has_tokens(node: &Node) -> bool {
    match node {
        Node::Token(_) => true,
        Node::Sequence(items) | Node::Choice(items) => items.iter().any(has_tokens),
        Node::Repeat(inner, _, _) => has_tokens(inner),
        Node::Terminal(_) | Node::Rule(_) => false,
    }
}
