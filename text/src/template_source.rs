//! What is rewritten in a template's source because the engine has no hook for it.

use crate::error::TextError;
use crate::template_tokens::{tokenize, Kind, Token};

/// The function that adds as Python does when one of the texts is markup.
pub const SAFE_SUM: &str = "__safe_sum";
/// The function that a loop's values pass through.
pub const ITERATE: &str = "__iterate";
/// The function that values pass through on their way into a variable.
pub const BIND: &str = "__bind";
/// The function for a text literal's `%`.
pub const PERCENT: &str = "__percent";

const LARGEST_SOURCE: usize = 1 << 20;
/// The engine's parser and compiler recurse over an expression's operators.
const LARGEST_TAG: usize = 32 << 10;
const MOST_TAGS: usize = 20_000;
/// Its compiler also takes time with the square of the depth of open blocks.
const DEEPEST_BLOCKS: usize = 100;

/// The source as the engine has to read it:
/// - line ends are `\n`, and the one behind `{% raw %}` is kept;
/// - `{% generation %}` marks what the assistant said, for training, and has no effect here;
/// - sums with a `safe` operand become calls of `SAFE_SUM`, `'...' % x` of `PERCENT`;
/// - a loop's values pass through `ITERATE`, those that `set`, `with` and macros bind through `BIND`;
/// - `{{ a, b }}` is a tuple; text literals have the escapes that the engine knows.
///
/// Fails for a source that is larger or nested deeper than any real template.
pub fn prepare(source: &str) -> Result<String, TextError> {
    if source.len() > LARGEST_SOURCE {
        return Err(TextError::failed(format!(
            "it has {} bytes; a chat template has at most {LARGEST_SOURCE}",
            source.len()
        )));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut text = String::with_capacity(source.len() * 2);
    let mut rest = source.as_str();
    let mut tags = 0;
    let mut depth = Depth(0);
    while let Some(start) = next_tag(rest) {
        text.push_str(&rest[..start]);
        let tag = &rest[start..];
        let Some(length) = tag_length(tag) else {
            rest = tag;
            break;
        };
        tags += 1;
        if length > LARGEST_TAG || tags > MOST_TAGS {
            return Err(TextError::failed("it is too large for a chat template"));
        }
        let (tag, after) = tag.split_at(length);
        rest = after;
        match &tag[..2] {
            "{%" => {
                let (_, content, _) = parts(tag);
                depth.enter(content)?;
                if content.trim() == "raw" {
                    rest = push_raw(&mut text, tag, after);
                } else {
                    push_block(&mut text, tag);
                }
            }
            "{{" => push_expression(&mut text, tag),
            _ => text.push_str(tag),
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// How many blocks are open.
struct Depth(usize);

impl Depth {
    fn enter(&mut self, content: &str) -> Result<(), TextError> {
        let word = content.split_whitespace().next().unwrap_or("");
        if word.starts_with("end") {
            self.0 = self.0.saturating_sub(1);
        } else if matches!(
            word,
            "if" | "for" | "macro" | "call" | "filter" | "with" | "block" | "generation"
        ) {
            self.0 += 1;
        }
        if self.0 > DEEPEST_BLOCKS {
            return Err(TextError::failed("its blocks are nested too deeply"));
        }
        Ok(())
    }
}

fn next_tag(text: &str) -> Option<usize> {
    let open = |(index, _): &(usize, &str)| {
        matches!(text.as_bytes().get(index + 1), Some(b'%' | b'{' | b'#'))
    };
    text.match_indices('{').find(open).map(|(index, _)| index)
}

fn tag_length(tag: &str) -> Option<usize> {
    let end = match &tag[..2] {
        "{%" => find_unquoted(&tag[2..], "%}"),
        "{{" => find_unquoted(&tag[2..], "}}"),
        _ => tag[2..].find("#}"),
    };
    end.map(|index| index + 4)
}

/// Where `wanted` is outside of quotes and braces.
fn find_unquoted(text: &str, wanted: &str) -> Option<usize> {
    let mut quote = None;
    let mut escaped = false;
    let mut braces = 0_usize;
    for (index, character) in text.char_indices() {
        if let Some(open) = quote {
            if escaped {
                escaped = false;
            } else if character == '\\' {
                escaped = true;
            } else if character == open {
                quote = None;
            }
            continue;
        }
        if braces == 0 && text[index..].starts_with(wanted) {
            return Some(index);
        }
        match character {
            '\'' | '"' => quote = Some(character),
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// A tag's opening and closing with their white-space marks, and what is between them.
fn parts(tag: &str) -> (&str, &str, &str) {
    let inner = &tag[2..tag.len() - 2];
    let without_start = inner.strip_prefix(['-', '+']).unwrap_or(inner);
    let content = without_start
        .strip_suffix(['-', '+'])
        .unwrap_or(without_start);
    let start = 2 + inner.len() - without_start.len();
    let end = start + content.len();
    (&tag[..start], content, &tag[end..])
}

/// Copies a raw block; gives what is behind its end tag's beginning.
fn push_raw<'a>(text: &mut String, tag: &str, after: &'a str) -> &'a str {
    text.push_str(tag);
    if after.starts_with('\n') && !parts(tag).2.starts_with('-') {
        // The engine drops the first newline, Jinja does not.
        text.push('\n');
    }
    let is_end = |(index, _): &(usize, &str)| {
        let content = after[index + 2..].trim_start_matches(['-', '+']);
        content.trim_start().starts_with("endraw")
    };
    let end = after.match_indices("{%").find(is_end);
    let end = end.map_or(after.len(), |(index, _)| index);
    text.push_str(&after[..end]);
    &after[end..]
}

fn push_block(text: &mut String, tag: &str) {
    let (open, content, close) = parts(tag);
    match content.trim() {
        "generation" => text.push_str(&format!("{open} if true {close}")),
        "endgeneration" => text.push_str(&format!("{open} endif {close}")),
        _ => {
            let mut tokens = tokenize(content);
            rewrite_percent(&mut tokens);
            rewrite_loop(&mut tokens);
            rewrite_assignments(&mut tokens);
            match parameters(&tokens) {
                names if names.is_empty() => push_tag(text, open, &tokens, close),
                names => {
                    push_tag(text, open, &tokens, "%}");
                    text.push_str(&format!("{{% do {BIND}({}) {close}", names.join(", ")));
                }
            }
        }
    }
}

fn push_expression(text: &mut String, tag: &str) {
    let (open, content, close) = parts(tag);
    let mut tokens = tokenize(content);
    rewrite_percent(&mut tokens);
    if tokens.iter().any(|token| token.is(0, ",")) {
        wrap(&mut tokens, 0, usize::MAX, "(", ")");
    } else {
        rewrite_safe_sum(&mut tokens);
    }
    push_tag(text, open, &tokens, close);
}

fn push_tag(text: &mut String, open: &str, tokens: &[Token], close: &str) {
    text.push_str(open);
    for token in tokens {
        text.push_str(&token.text);
    }
    text.push_str(close);
}

/// Puts tokens around `[start, end)`, leaving outer white space outside.
fn wrap(tokens: &mut Vec<Token>, start: usize, end: usize, open: &str, close: &str) {
    let mut start = start;
    let mut end = end.min(tokens.len());
    while start < end && tokens[start].kind == Kind::Space {
        start += 1;
    }
    while end > start && tokens[end - 1].kind == Kind::Space {
        end -= 1;
    }
    tokens.insert(end, Token::code(close));
    tokens.insert(start, Token::code(open));
}

/// `for x in VALUES if c recursive`.
fn rewrite_loop(tokens: &mut Vec<Token>) {
    let first = tokens.iter().find(|token| token.kind != Kind::Space);
    if !first.is_some_and(|token| token.is(0, "for")) {
        return;
    }
    let Some(word) = tokens.iter().position(|token| token.is(0, "in")) else {
        return;
    };
    let end = tokens[word..]
        .iter()
        .position(|token| token.is(0, "if") || token.is(0, "recursive"))
        .map_or(tokens.len(), |index| word + index);
    wrap(tokens, word + 1, end, &format!("{ITERATE}("), ")");
}

/// `set x = VALUE`, `with x = VALUE, y = VALUE`.
fn rewrite_assignments(tokens: &mut Vec<Token>) {
    let first = tokens.iter().find(|token| token.kind != Kind::Space);
    let separate = first.is_some_and(|token| token.is(0, "with"));
    if !separate && !first.is_some_and(|token| token.is(0, "set")) {
        return;
    }
    let mut end = tokens.len();
    for index in (0..tokens.len()).rev() {
        if separate && tokens[index].is(0, ",") {
            end = index;
        } else if tokens[index].is(0, "=") {
            let bound = &tokens[index + 1..end];
            if bound.iter().any(|token| token.is(0, ",")) {
                wrap(tokens, index + 1, end, &format!("{BIND}(("), "))");
            } else {
                wrap(tokens, index + 1, end, &format!("{BIND}("), ")");
            }
            end = index;
        }
    }
}

/// The names that `macro m(a, b=1)` and `call(a) m()` bind.
fn parameters(tokens: &[Token]) -> Vec<&str> {
    let mut words = tokens.iter().filter(|token| token.kind != Kind::Space);
    let Some(first) = words.next() else {
        return Vec::new();
    };
    let is_macro = first.is(0, "macro");
    if !is_macro && !first.is(0, "call") || is_macro && words.next().is_none() {
        return Vec::new();
    }
    let mut names = Vec::new();
    let mut begins = words.next().is_some_and(|token| token.is(0, "("));
    if !begins {
        return names;
    }
    for token in words.take_while(|token| token.depth > 0) {
        if begins && token.kind == Kind::Name {
            names.push(token.text.as_str());
        }
        begins = token.is(1, ",");
    }
    names
}

/// `'...' % operand`, from the last to the first.
fn rewrite_percent(tokens: &mut Vec<Token>) {
    for index in (0..tokens.len()).rev() {
        if tokens[index].kind != Kind::Operator || tokens[index].text != "%" {
            continue;
        }
        let Some(left) = text_literals_before(tokens, index) else {
            continue;
        };
        let right = operand_end(tokens, index + 1);
        tokens[index] = Token::code(",");
        wrap(tokens, left, right, &format!("{PERCENT}("), ")");
    }
}

/// The first of the text literals that end right before `index`.
fn text_literals_before(tokens: &[Token], index: usize) -> Option<usize> {
    let mut first = None;
    for (position, token) in tokens[..index].iter().enumerate().rev() {
        match token.kind {
            Kind::Text => first = Some(position),
            Kind::Space => {}
            Kind::Operator if matches!(token.text.as_str(), "*" | "/" | "//" | "%" | "**") => {
                return None
            }
            _ => break,
        }
    }
    first
}

/// The end of the unary expression that begins at `start`: a value with calls, items, filters.
fn operand_end(tokens: &[Token], start: usize) -> usize {
    let mut end = start;
    let mut complete = false;
    let mut index = start;
    while index < tokens.len() {
        let token = &tokens[index];
        let text = token.text.as_str();
        match token.kind {
            Kind::Space => {}
            Kind::Operator if matches!(text, "(" | "[" | "{") => {
                index = closing(tokens, index);
                complete = true;
                end = index + 1;
            }
            Kind::Operator if matches!(text, "." | "|") && complete => {
                // The name behind it.
                index += 1;
                while index < tokens.len() && tokens[index].kind == Kind::Space {
                    index += 1;
                }
                end = (index + 1).min(tokens.len());
            }
            Kind::Operator if matches!(text, "-" | "+") && !complete => {}
            Kind::Text => {
                complete = true;
                end = index + 1;
            }
            Kind::Name | Kind::Number if !complete => {
                complete = true;
                end = index + 1;
            }
            _ => break,
        }
        index += 1;
    }
    end
}

fn closing(tokens: &[Token], open: usize) -> usize {
    let depth = tokens[open].depth;
    let is_close = |token: &Token| {
        token.depth == depth
            && token.kind == Kind::Operator
            && matches!(token.text.as_str(), ")" | "]" | "}")
    };
    tokens[open + 1..]
        .iter()
        .position(is_close)
        .map_or(tokens.len() - 1, |index| open + 1 + index)
}

/// A plain sum in which one operand is marked `safe`.
fn rewrite_safe_sum(tokens: &mut Vec<Token>) {
    let mut sums = Vec::new();
    let mut safe = false;
    let mut filter = false;
    for (index, token) in tokens.iter().enumerate() {
        if token.depth > 0 || token.kind == Kind::Space {
            continue;
        }
        match token.text.as_str() {
            "+" => sums.push(index),
            "~" | "-" | "<" | ">" | "<=" | ">=" | "==" | "!=" | "if" | "else" | "or" | "and"
            | "not" | "in" | "is" => return,
            "safe" => safe |= filter,
            _ => {}
        }
        filter = token.is(0, "|");
    }
    if !safe || sums.is_empty() {
        return;
    }
    for index in sums {
        tokens[index] = Token::code(",");
    }
    wrap(tokens, 0, usize::MAX, &format!("{SAFE_SUM}("), ")");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rewrites_only_what_it_must() {
        let cases = [
            (
                "{%- generation -%}x{% endgeneration %}",
                "{%- if true -%}x{% endif %}",
            ),
            ("{{ a + b }} {% if a %}", "{{ a + b }} {% if a %}"),
            (
                "{{- 'x + y'|safe + b|f(1 + 2) }}",
                "{{- __safe_sum('x + y'|safe , b|f(1 + 2)) }}",
            ),
            (
                "{{ a|safe + b if c else d }}",
                "{{ a|safe + b if c else d }}",
            ),
            ("{{ '}}' + safe }}{{", "{{ '}}' + safe }}{{"),
            ("{# '{% #}{% generation %}", "{# '{% #}{% if true %}"),
            (
                "{% for a, b in x.items() if b in c %}",
                "{% for a, b in __iterate(x.items()) if b in c %}",
            ),
            (
                "{{ '%s' % a.b[0] | f(1) ~ 'c' % (1, 2) }}{{ 7 % 2 }}",
                "{{ __percent('%s' , a.b[0] | f(1)) ~ __percent('c' , (1, 2)) }}{{ 7 % 2 }}",
            ),
            ("{{ 1, 2 }}", "{{ (1, 2) }}"),
            (
                "{% set a.b = c == [d] -%}{% set a, b = 1, (2) %}{% set x | f(y=1) %}",
                "{% set a.b = __bind(c == [d]) -%}{% set a, b = __bind((1, (2))) %}{% set x | f(y=1) %}",
            ),
            (
                "{% with a = 1, b = f(c=2, d=3) %}",
                "{% with a = __bind(1), b = __bind(f(c=2, d=3)) %}",
            ),
            (
                "{%- macro m(a, b=(c, d)) -%}{% macro m() %}{% call(a) m(b) %}{% call m(b) %}",
                "{%- macro m(a, b=(c, d)) %}{% do __bind(a, b) -%}{% macro m() %}\
                 {% call(a) m(b) %}{% do __bind(a) %}{% call m(b) %}",
            ),
            ("{{ {'a': {'b': 1}} }}x", "{{ {'a': {'b': 1}} }}x"),
            ("a\r\nb\rc", "a\nb\nc"),
            (
                "{% raw %}\n{% for x in y %}{% endraw %}",
                "{% raw %}\n\n{% for x in y %}{% endraw %}",
            ),
        ];
        for (source, expected) in cases {
            assert_eq!(prepare(source).unwrap_or_default(), expected);
        }
    }

    #[test]
    fn refuses_what_no_template_is_like() {
        let nested = "{% if a %}".repeat(200);
        let large = format!("{{{{ {} }}}}", "1+".repeat(30_000));
        for source in [nested, large, "x".repeat(2 << 20)] {
            assert!(prepare(&source).is_err());
        }
    }
}
