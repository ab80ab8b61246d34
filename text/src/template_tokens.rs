//! The tokens of a template's expressions, as far as rewriting needs them.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Space,
    Name,
    Number,
    /// A text literal with its quotes.
    Text,
    Operator,
}

#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    /// How many brackets are open around it.
    pub depth: usize,
}

impl Token {
    /// Code put in by rewriting.
    pub fn code(text: &str) -> Self {
        Self {
            kind: Kind::Operator,
            text: text.to_owned(),
            depth: usize::MAX,
        }
    }

    /// Whether it is this operator or name, within so many brackets.
    pub fn is(&self, depth: usize, text: &str) -> bool {
        self.depth == depth && matches!(self.kind, Kind::Operator | Kind::Name) && self.text == text
    }
}

/// Cuts an expression into tokens; joined they are the expression, escapes in text literals apart.
pub fn tokenize(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut depth: usize = 0;
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let (kind, length) = classify(rest, first);
        let (text, after) = rest.split_at(length);
        if matches!(text, ")" | "]" | "}") {
            depth = depth.saturating_sub(1);
        }
        let text = match kind {
            Kind::Text => plain_escapes(text),
            _ => text.to_owned(),
        };
        let opens = matches!(text.as_str(), "(" | "[" | "{");
        tokens.push(Token { kind, text, depth });
        depth += usize::from(opens);
        rest = after;
    }
    tokens
}

fn classify(rest: &str, first: char) -> (Kind, usize) {
    let run = |accept: &dyn Fn(char) -> bool| {
        rest.char_indices()
            .find(|(_, character)| !accept(*character))
            .map_or(rest.len(), |(index, _)| index)
    };
    match first {
        '\'' | '"' => (Kind::Text, literal_length(rest, first)),
        _ if first.is_whitespace() => (Kind::Space, run(&char::is_whitespace)),
        _ if first.is_ascii_digit() => (Kind::Number, run(&|c| c.is_alphanumeric() || c == '_')),
        _ if first.is_alphabetic() || first == '_' => {
            (Kind::Name, run(&|c| c.is_alphanumeric() || c == '_'))
        }
        _ => {
            let double = ["**", "//", "==", "!=", "<=", ">="];
            let length = match double.iter().find(|pair| rest.starts_with(**pair)) {
                Some(pair) => pair.len(),
                None => first.len_utf8(),
            };
            (Kind::Operator, length)
        }
    }
}

fn literal_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == quote {
            return index + 1;
        }
    }
    text.len()
}

/// Python's escapes that the engine lacks, spelled otherwise.
fn plain_escapes(literal: &str) -> String {
    if !literal.contains('\\') {
        return literal.to_owned();
    }
    let mut text = String::with_capacity(literal.len());
    let mut rest = literal;
    while let Some(start) = rest.find('\\') {
        text.push_str(&rest[..start]);
        let escape = &rest[start..];
        let (replacement, length) = match escape.as_bytes().get(1) {
            Some(b'\n') => (String::new(), 2),
            Some(b'a') => ("\\x07".to_owned(), 2),
            Some(b'v') => ("\\x0b".to_owned(), 2),
            Some(b'U') => match long_escape(escape) {
                Some(character) => (character.to_string(), 10),
                None => (escape[..2].to_owned(), 2),
            },
            Some(b'0'..=b'7') => octal_escape(escape),
            Some(_) => {
                let length = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
                (escape[..length].to_owned(), length)
            }
            None => (escape.to_owned(), 1),
        };
        text.push_str(&replacement);
        rest = &escape[length..];
    }
    text.push_str(rest);
    text
}

/// `\U0001F600`; not for a quote or backslash, which would need an escape again.
fn long_escape(escape: &str) -> Option<char> {
    let digits = escape.get(2..10)?;
    let character = char::from_u32(u32::from_str_radix(digits, 16).ok()?)?;
    (character as u32 > 0x7f).then_some(character)
}

fn octal_escape(escape: &str) -> (String, usize) {
    let digits = escape[1..]
        .chars()
        .take(3)
        .take_while(|c| ('0'..='7').contains(c))
        .count();
    let code = u32::from_str_radix(&escape[1..=digits], 8).unwrap_or(0);
    (format!("\\u{code:04x}"), 1 + digits)
}
