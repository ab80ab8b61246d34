//! JSON Schema's regular expressions, which are ECMAScript's, in the syntax of Rust's.

use super::constraint::is_escapable;
use crate::error::TextError;

/// ECMAScript's white space.
const SPACE: &str = r"\t\n\x0b\x0c\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}";
const NO_LINE_END: &str = r"[^\n\r\x{2028}\x{2029}]";

/// Repetitions inside of others may multiply to so many: each count of each is a state of its own.
const MOST_REPETITIONS: u64 = 10_000;

/// The expression that matches the same texts. Refuses what only backtracking engines can do, and
/// control characters, which strings of constrained texts do not hold.
pub fn from_ecma(pattern: &str) -> Result<String, TextError> {
    Translator {
        rest: pattern,
        output: String::with_capacity(pattern.len()),
        repetitions: Repetitions::default(),
    }
    .run()
    .map_err(|problem| {
        TextError::refused(format!(
            "the pattern {pattern:?} is not supported: {problem}"
        ))
    })
}

/// Whether a string of a constrained text can hold the character: control characters apart from
/// those with an escape of their own it cannot.
pub fn is_expressible(character: char) -> bool {
    !character.is_ascii_control() || matches!(character, '\t' | '\n' | '\r' | '\u{8}' | '\u{c}')
}

struct Translator<'a> {
    rest: &'a str,
    output: String,
    repetitions: Repetitions,
}

/// How often the innermost part of what has been read is repeated.
#[derive(Default)]
struct Repetitions {
    /// Of the groups that are open, from the outermost on.
    open: Vec<u64>,
    /// Of the parts outside of groups.
    outside: u64,
    /// Of the last part.
    last: u64,
}

impl Repetitions {
    fn innermost(&mut self) -> &mut u64 {
        self.open.last_mut().unwrap_or(&mut self.outside)
    }

    fn part(&mut self, times: u64) {
        self.last = times;
        let most = self.innermost();
        *most = (*most).max(times);
    }

    fn close_group(&mut self) {
        let times = self.open.pop().unwrap_or(1);
        self.part(times);
    }

    /// `least` and `most` as written; only what repeats repetitions is limited.
    fn repeat(&mut self, least: &str, most: &str) -> Outcome {
        let count = if most.is_empty() { least } else { most };
        let count = count.parse().unwrap_or(u64::MAX);
        let times = self.last.max(1).saturating_mul(count.max(1));
        if self.last > 1 && count > 1 && times > MOST_REPETITIONS {
            return Err(format!(
                "its repetitions multiply to more than {MOST_REPETITIONS}"
            ));
        }
        self.part(times);
        Ok(())
    }
}

type Outcome = Result<(), String>;

impl Translator<'_> {
    fn run(mut self) -> Result<String, String> {
        while let Some(character) = self.next() {
            match character {
                '(' | ')' | '{' | '?' | '*' | '+' => {}
                _ => self.repetitions.part(1),
            }
            match character {
                ')' => {
                    self.repetitions.close_group();
                    self.output.push(')');
                }
                '\\' => self.escape(false)?,
                '.' => self.output.push_str(NO_LINE_END),
                '[' => self.class()?,
                '(' => self.group()?,
                '{' => self.brace()?,
                '}' => self.output.push_str("\\}"),
                other => self.literal(other)?,
            }
        }
        Ok(self.output)
    }

    fn next(&mut self) -> Option<char> {
        let mut characters = self.rest.chars();
        let character = characters.next()?;
        self.rest = characters.as_str();
        Some(character)
    }

    fn take(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn literal(&mut self, character: char) -> Outcome {
        check_expressible(character)?;
        self.output.push(character);
        Ok(())
    }

    fn code_point(&mut self, character: char) -> Outcome {
        check_expressible(character)?;
        self.output
            .push_str(&format!("\\x{{{:x}}}", character as u32));
        Ok(())
    }

    /// What follows a backslash.
    fn escape(&mut self, in_class: bool) -> Outcome {
        let Some(character) = self.next() else {
            return Err("it ends with a backslash".to_owned());
        };
        match character {
            's' if in_class => self.output.push_str(SPACE),
            's' => self.output.push_str(&format!("[{SPACE}]")),
            'S' => self.output.push_str(&format!("[^{SPACE}]")),
            'd' | 'D' | 'w' | 'W' | 'p' | 'P' | 't' | 'n' | 'r' | 'f' => {
                self.output.push('\\');
                self.output.push(character);
                if matches!(character, 'p' | 'P') {
                    self.property()?;
                }
            }
            'b' if in_class => self.output.push_str("\\x{8}"),
            'x' => {
                let code = self.hexadecimal(2)?;
                self.code_point(char::from_u32(code).ok_or("an escape that is no character")?)?;
            }
            'u' => self.unicode_escape()?,
            'b' | 'B' => return Err("it has a word boundary".to_owned()),
            '1'..='9' | 'k' => return Err("it refers back to a group".to_owned()),
            other if other.is_ascii_punctuation() => {
                if other != '/' && is_escapable(other) {
                    self.output.push('\\');
                }
                self.output.push(other);
            }
            other => return Err(format!("it has the escape \\{other}")),
        }
        Ok(())
    }

    /// The braces after `\p`.
    fn property(&mut self) -> Outcome {
        let end = self.rest.find('}').filter(|_| self.rest.starts_with('{'));
        let end = end.ok_or("it has \\p without braces")?;
        self.output.push_str(&self.rest[..=end]);
        self.rest = &self.rest[end + 1..];
        Ok(())
    }

    fn hexadecimal(&mut self, digits: usize) -> Result<u32, String> {
        let code = self
            .rest
            .get(..digits)
            .and_then(|text| u32::from_str_radix(text, 16).ok())
            .ok_or("it has an incomplete escape")?;
        self.rest = &self.rest[digits..];
        Ok(code)
    }

    fn unicode_escape(&mut self) -> Outcome {
        let mut code = if self.take("{") {
            let end = self.rest.find('}').ok_or("it has an incomplete escape")?;
            let code = self.hexadecimal(end)?;
            self.take("}");
            code
        } else {
            self.hexadecimal(4)?
        };
        if (0xd800..0xdc00).contains(&code) && self.take("\\u") {
            let low = self.hexadecimal(4)?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            }
        }
        self.code_point(char::from_u32(code).ok_or("it has half a character")?)
    }

    /// A class from behind its opening bracket on. Rust's classes nest and have set operators.
    fn class(&mut self) -> Outcome {
        if self.take("^]") {
            self.output.push_str("(?s:.)");
            return Ok(());
        }
        self.output.push('[');
        if self.take("^") {
            self.output.push('^');
        }
        if self.take("]") {
            return Err("it has an empty class".to_owned());
        }
        loop {
            match self.next() {
                None => return Err("it has a class without an end".to_owned()),
                Some(']') => break,
                Some('\\') => self.escape(true)?,
                Some('-') if self.output.ends_with('-') => self.output.push_str("\\-"),
                Some(operator @ ('[' | '&' | '~' | '^')) => {
                    self.output.push('\\');
                    self.output.push(operator);
                }
                Some(other) => self.literal(other)?,
            }
        }
        self.output.push(']');
        Ok(())
    }

    /// A group from behind its opening parenthesis on.
    fn group(&mut self) -> Outcome {
        self.output.push('(');
        self.repetitions.open.push(1);
        if !self.rest.starts_with('?') {
            return Ok(());
        }
        for look in ["?=", "?!", "?<=", "?<!"] {
            if self.rest.starts_with(look) {
                return Err("it looks ahead or behind".to_owned());
            }
        }
        for opening in ["?:", "?P<", "?<", "?i)", "?i:"] {
            if self.take(opening) {
                self.output.push_str(opening);
                return Ok(());
            }
        }
        Err("it has an unknown kind of group".to_owned())
    }

    /// A repetition, or else a brace that stands for itself.
    fn brace(&mut self) -> Outcome {
        let inner = self.rest.split('}').next().unwrap_or_default();
        let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let repeats = !least.is_empty()
            && is_number(least)
            && is_number(most)
            && self.rest.len() > inner.len();
        if repeats {
            self.repetitions.repeat(least, most)?;
            self.output.push('{');
            self.output.push_str(inner);
            self.output.push('}');
            self.rest = &self.rest[inner.len() + 1..];
        } else {
            self.repetitions.part(1);
            self.output.push_str("\\{");
        }
        Ok(())
    }
}

fn check_expressible(character: char) -> Outcome {
    if is_expressible(character) {
        Ok(())
    } else {
        Err("it has a control character".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_ecma_script_differ() {
        assert_eq!(from_ecma(r"^a.b$").unwrap(), r"^a[^\n\r\x{2028}\x{2029}]b$");
        assert_eq!(from_ecma(r"[a&&b[~-]").unwrap(), r"[a\&\&b\[\~-]");
        assert_eq!(from_ecma(r"a{2,3}{x}").unwrap(), r"a{2,3}\{x\}");
        assert_eq!(
            from_ecma(r"\u00e9\ud83d\ude00").unwrap(),
            r"\x{e9}\x{1f600}"
        );
        assert_eq!(from_ecma(r"\/\-[^]").unwrap(), r"/\-(?s:.)");
        assert!(from_ecma(r"^a{100000}(b{9}c){99}(a{100}|[(]{100}\(){100}$").is_ok());
        for refused in [r"(a{1000}){1000}", r"((a|b{99}c)?{99}){9}"] {
            let problem = from_ecma(refused).unwrap_err().to_string();
            assert!(problem.contains("multiply") && problem.contains(refused));
        }
        for refused in [r"(?=a)b", r"(a)\1", r"\bx", r"\x01", r"[\cA]", r"a\"] {
            assert!(from_ecma(refused).is_err(), "{refused}");
        }
    }
}
