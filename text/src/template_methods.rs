//! Python's string, list and dict methods: those that minijinja's own set lacks or binds differently.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;

use crate::template_arguments::{failure, text_of, Arguments};
use crate::template_format;
use crate::template_print::{is_decimal, is_printable};

pub fn call(
    state: &mut State,
    value: &Value,
    method: &str,
    arguments: &[Value],
) -> Result<Value, Error> {
    let text = value.as_str().unwrap_or("");
    let own = match value.kind() {
        ValueKind::String => match padding(state, text, method, arguments)? {
            Some(result) => Some(result),
            None => match search(text, method, arguments)? {
                Some(result) => Some(result),
                None => string_method(state, text, method, arguments)?,
            },
        },
        ValueKind::Bytes if method == "decode" => Some(Value::from(
            String::from_utf8_lossy(value.as_bytes().unwrap_or(&[])).into_owned(),
        )),
        ValueKind::Seq => list_method(value, method, arguments)?,
        ValueKind::Map if method == "copy" => {
            Arguments::bind(arguments, &[])?;
            Some(value.clone())
        }
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, arguments),
    }
}

/// Methods that cut, join and change a text, or say of what kind it is.
fn string_method(
    state: &State,
    text: &str,
    method: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    let no_arguments = || Arguments::bind(arguments, &[]);
    let one_text = || Arguments::bind(arguments, &["text"]);
    let result = match method {
        "removeprefix" => {
            let bound = one_text()?;
            Value::from(text.strip_prefix(bound.required_text(0)?).unwrap_or(text))
        }
        "removesuffix" => {
            let bound = one_text()?;
            Value::from(text.strip_suffix(bound.required_text(0)?).unwrap_or(text))
        }
        "partition" | "rpartition" => partition(text, method, one_text()?.required_text(0)?)?,
        "split" | "rsplit" => {
            let bound = Arguments::bind(arguments, &["sep", "maxsplit"])?;
            split(text, method, bound.text(0)?, bound.integer(1)?)?
        }
        "splitlines" => split_lines(text, Arguments::bind(arguments, &["keepends"])?.flag(0)),
        "join" => join(text, one_text()?.required(0)?)?,
        "format" => Value::from(template_format::braces(state, text, arguments)?),
        "encode" => {
            Arguments::bind(arguments, &["encoding", "errors"])?;
            Value::from_bytes(text.as_bytes().to_vec())
        }
        "translate" => translate(text, one_text()?.required(0)?)?,
        "swapcase" => no_arguments().map(|_| Value::from(swap_case(text)))?,
        "casefold" => {
            no_arguments()?;
            Value::from(text.to_lowercase().replace('ß', "ss"))
        }
        "title" => no_arguments().map(|_| Value::from(title(text)))?,
        "istitle" => no_arguments().map(|_| Value::from(is_title(text)))?,
        "isdecimal" => {
            no_arguments()?;
            Value::from(!text.is_empty() && text.chars().all(is_decimal))
        }
        "isprintable" => no_arguments().map(|_| Value::from(text.chars().all(is_printable)))?,
        "isidentifier" => no_arguments().map(|_| Value::from(is_identifier(text)))?,
        _ => return Ok(None),
    };
    Ok(Some(result))
}

/// Methods that bring a text to a width.
fn padding(
    state: &State,
    text: &str,
    method: &str,
    arguments: &[Value],
) -> Result<Option<Value>, Error> {
    if !matches!(
        method,
        "zfill" | "ljust" | "rjust" | "center" | "expandtabs"
    ) {
        return Ok(None);
    }
    let names: &[&str] = match method {
        "expandtabs" => &["tabsize"],
        "zfill" => &["width"],
        _ => &["width", "fillchar"],
    };
    let bound = Arguments::bind(arguments, names)?;
    if method == "expandtabs" {
        let size = bound.width(0, state)?.unwrap_or(8);
        return Ok(Some(Value::from(expand_tabs(text, size))));
    }
    bound.required(0)?;
    let width = bound.width(0, state)?.unwrap_or(0);
    let missing = width.saturating_sub(text.chars().count());
    if method == "zfill" {
        let sign = text.len() - text.trim_start_matches(['+', '-']).len();
        let (sign, digits) = text.split_at(sign.min(1));
        return Ok(Some(Value::from(format!(
            "{sign}{}{digits}",
            "0".repeat(missing)
        ))));
    }
    let fill = bound.text(1)?.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(failure("the fill character must be exactly one character"));
    }
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width & 1),
    };
    Ok(Some(Value::from(format!(
        "{}{text}{}",
        fill.repeat(left),
        fill.repeat(missing - left)
    ))))
}

/// Methods that look for a text in another, perhaps in a part of it.
fn search(text: &str, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    if !matches!(
        method,
        "startswith" | "endswith" | "find" | "rfind" | "index" | "rindex" | "count"
    ) {
        return Ok(None);
    }
    let bound = Arguments::bind(arguments, &["sub", "start", "end"])?;
    let length = text.chars().count();
    let start = clamp(bound.integer(1)?.unwrap_or(0), length);
    let end = clamp(bound.integer(2)?.unwrap_or(i64::MAX), length);
    if start > end || bound.integer(1)?.is_some_and(|start| start > length as i64) {
        return Ok(Some(match method {
            "startswith" | "endswith" => Value::from(false),
            "count" => Value::from(0),
            "find" | "rfind" => Value::from(-1),
            _ => return Err(failure("substring not found")),
        }));
    }
    let part = &text[byte_index(text, start)..byte_index(text, end)];
    let wanted = bound.required(0)?;
    if matches!(method, "startswith" | "endswith") {
        return Ok(Some(Value::from(has_affix(part, method, wanted)?)));
    }
    let wanted = text_of(wanted)?;
    if method == "count" {
        let count = if wanted.is_empty() {
            part.chars().count() + 1
        } else {
            part.matches(wanted).count()
        };
        return Ok(Some(Value::from(count)));
    }
    let found = match method {
        "find" | "index" => part.find(wanted),
        _ => part.rfind(wanted),
    };
    match found {
        Some(index) => Ok(Some(Value::from(start + part[..index].chars().count()))),
        None if method.ends_with("find") => Ok(Some(Value::from(-1))),
        None => Err(failure("substring not found")),
    }
}

fn has_affix(text: &str, method: &str, wanted: &Value) -> Result<bool, Error> {
    let has = |affix: &str| match method {
        "startswith" => text.starts_with(affix),
        _ => text.ends_with(affix),
    };
    if !wanted.is_tuple() {
        return text_of(wanted).map(has);
    }
    for affix in wanted.try_iter()?.checked() {
        if has(text_of(&affix?)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// An index of Python's as one of `0..=length`: negative ones count from the end.
fn clamp(index: i64, length: usize) -> usize {
    if index < 0 {
        length.saturating_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX))
    } else {
        usize::try_from(index).unwrap_or(usize::MAX).min(length)
    }
}

fn byte_index(text: &str, character: usize) -> usize {
    text.char_indices()
        .nth(character)
        .map_or(text.len(), |(index, _)| index)
}

fn partition(text: &str, method: &str, separator: &str) -> Result<Value, Error> {
    if separator.is_empty() {
        return Err(failure("empty separator"));
    }
    let parts = if method == "partition" {
        match text.split_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => [text, "", ""],
        }
    } else {
        match text.rsplit_once(separator) {
            Some((before, after)) => [before, separator, after],
            None => ["", "", text],
        }
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

fn split(
    text: &str,
    method: &str,
    separator: Option<&str>,
    limit: Option<i64>,
) -> Result<Value, Error> {
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX - 1);
    let mut found: Vec<&str> = match separator {
        Some("") => return Err(failure("empty separator")),
        Some(separator) if method == "split" => text.splitn(limit + 1, separator).collect(),
        Some(separator) => text.rsplitn(limit + 1, separator).collect(),
        None if method == "split" => split_at_spaces(text, limit),
        None => split_at_spaces_from_the_end(text, limit),
    };
    if method == "rsplit" {
        found.reverse();
    }
    Ok(found.into_iter().map(Value::from).collect())
}

fn split_at_spaces(text: &str, limit: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() && found.len() < limit {
        let end = rest.find(is_space).unwrap_or(rest.len());
        found.push(&rest[..end]);
        rest = rest[end..].trim_start_matches(is_space);
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

fn split_at_spaces_from_the_end(text: &str, limit: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() && found.len() < limit {
        let start = rest
            .char_indices()
            .rev()
            .find(|(_, character)| is_space(*character))
            .map_or(0, |(index, character)| index + character.len_utf8());
        found.push(&rest[start..]);
        rest = rest[..start].trim_end_matches(is_space);
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

/// Python's `str.isspace`, which knows four separators more than Unicode's property.
fn is_space(character: char) -> bool {
    character.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&character)
}

fn split_lines(text: &str, keep_ends: bool) -> Value {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'
                ..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines: Vec<Value> = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(is_end).unwrap_or(rest.len());
        let width = match rest[end..].chars().next() {
            None => 0,
            Some('\r') if rest[end..].starts_with("\r\n") => 2,
            Some(character) => character.len_utf8(),
        };
        let kept = if keep_ends { end + width } else { end };
        lines.push(Value::from(&rest[..kept]));
        rest = &rest[end + width..];
    }
    Value::from(lines)
}

fn join(separator: &str, items: &Value) -> Result<Value, Error> {
    let mut text = String::new();
    for (index, item) in items.try_iter()?.checked().enumerate() {
        if index > 0 {
            text.push_str(separator);
        }
        text.push_str(text_of(&item?)?);
    }
    Ok(Value::from(text))
}

/// `table` maps code points to a text, a code point or none.
fn translate(text: &str, table: &Value) -> Result<Value, Error> {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        let entry = table.get_item(&Value::from(character as u32))?;
        if entry.is_undefined() {
            result.push(character);
        } else if let Some(replacement) = entry.as_str() {
            result.push_str(replacement);
        } else if let Some(code) = entry.as_i64() {
            let code = u32::try_from(code).ok().and_then(char::from_u32);
            result.push(code.ok_or_else(|| failure("not a code point"))?);
        }
    }
    Ok(Value::from(result))
}

fn expand_tabs(text: &str, size: usize) -> String {
    let mut result = String::with_capacity(text.len());
    let mut column = 0;
    for character in text.chars() {
        match character {
            '\t' if size > 0 => {
                let width = size - column % size;
                result.push_str(&" ".repeat(width));
                column += width;
            }
            '\t' => {}
            '\n' | '\r' => {
                result.push(character);
                column = 0;
            }
            _ => {
                result.push(character);
                column += 1;
            }
        }
    }
    result
}

fn swap_case(text: &str) -> String {
    text.chars()
        .flat_map(|character| -> Box<dyn Iterator<Item = char>> {
            if character.is_uppercase() {
                Box::new(character.to_lowercase())
            } else {
                Box::new(character.to_uppercase())
            }
        })
        .collect()
}

/// Every run of letters begins in upper case and goes on in lower case.
fn title(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut inside = false;
    for character in text.chars() {
        if inside {
            result.extend(character.to_lowercase());
        } else {
            result.extend(character.to_uppercase());
        }
        inside = character.is_alphabetic();
    }
    result
}

fn is_title(text: &str) -> bool {
    let mut any = false;
    let mut inside = false;
    for character in text.chars() {
        if character.is_uppercase() {
            if inside {
                return false;
            }
            any = true;
            inside = true;
        } else if character.is_lowercase() {
            if !inside {
                return false;
            }
        } else {
            inside = false;
        }
    }
    any
}

fn is_identifier(text: &str) -> bool {
    let mut characters = text.chars();
    characters
        .next()
        .is_some_and(|first| first == '_' || first.is_alphabetic())
        && characters.all(|character| character == '_' || character.is_alphanumeric())
}

fn list_method(value: &Value, method: &str, arguments: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "copy" if !value.is_tuple() => {
            Arguments::bind(arguments, &[])?;
            Ok(Some(value.clone()))
        }
        "index" => {
            let bound = Arguments::bind(arguments, &["value", "start", "end"])?;
            let length = value.len().unwrap_or(0);
            let start = clamp(bound.integer(1)?.unwrap_or(0), length);
            let end = clamp(bound.integer(2)?.unwrap_or(i64::MAX), length);
            let none = Value::from(());
            let wanted = bound.value(0).unwrap_or(&none);
            for (index, item) in value.try_iter()?.checked().enumerate() {
                if item? == *wanted && (start..end).contains(&index) {
                    return Ok(Some(Value::from(index)));
                }
            }
            Err(failure("the value is not in the list"))
        }
        _ => Ok(None),
    }
}
