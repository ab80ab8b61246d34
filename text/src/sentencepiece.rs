//! Reads a SentencePiece model (`tokenizer.model`, a protocol buffer) into a vocabulary.

use crate::error::TextError;
use crate::vocabulary::Vocabulary;

/// `TrainerSpec.ModelType`.
const UNIGRAM: u64 = 1;
const BPE: u64 = 2;

/// A field's value; other wire types do not occur in these messages.
enum Value<'a> {
    Number(u64),
    Float(f32),
    Bytes(&'a [u8]),
}

/// A message, read field by field.
struct Message<'a>(&'a [u8]);

impl<'a> Message<'a> {
    fn varint(&mut self) -> Result<u64, TextError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(malformed)?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(malformed())
    }

    fn take(&mut self, size: u64) -> Result<&'a [u8], TextError> {
        let size = usize::try_from(size).map_err(|_| malformed())?;
        if size > self.0.len() {
            return Err(malformed());
        }
        let (taken, rest) = self.0.split_at(size);
        self.0 = rest;
        Ok(taken)
    }

    /// The next field's number and value; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, TextError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Number(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Number(0)
            }
            2 => {
                let size = self.varint()?;
                Value::Bytes(self.take(size)?)
            }
            5 => {
                let bytes = self.take(4)?;
                Value::Float(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
            }
            _ => return Err(malformed()),
        };
        Ok(Some((key >> 3, value)))
    }
}

fn malformed() -> TextError {
    TextError::failed("it is no SentencePiece model: a field is malformed")
}

/// Whether the content looks like one: its first field is a piece.
pub fn is_model(content: &[u8]) -> bool {
    content.first() == Some(&0x0a)
}

pub fn read(content: &[u8]) -> Result<Vocabulary, TextError> {
    let mut vocabulary = Vocabulary {
        add_space_prefix: Some(true),
        remove_extra_whitespaces: Some(true),
        ..Default::default()
    };
    let mut model = Message(content);
    while let Some((field, value)) = model.next()? {
        match (field, value) {
            (1, Value::Bytes(piece)) => read_piece(piece, &mut vocabulary)?,
            (2, Value::Bytes(trainer)) => read_trainer(trainer, &mut vocabulary)?,
            (3, Value::Bytes(normalizer)) => read_normalizer(normalizer, &mut vocabulary)?,
            _ => {}
        }
    }
    if vocabulary.model.is_empty() {
        // The trainer's default.
        "t5".clone_into(&mut vocabulary.model);
    }
    let count = vocabulary.tokens.len() as u32;
    for id in [
        &mut vocabulary.bos,
        &mut vocabulary.eos,
        &mut vocabulary.unknown,
    ] {
        *id = id.filter(|id| *id < count);
    }
    Ok(vocabulary)
}

fn read_piece(piece: &[u8], vocabulary: &mut Vocabulary) -> Result<(), TextError> {
    let mut text = String::new();
    let mut score = 0.0;
    let mut kind = 1;
    let mut message = Message(piece);
    while let Some((field, value)) = message.next()? {
        match (field, value) {
            (1, Value::Bytes(bytes)) => {
                text = String::from_utf8(bytes.to_vec()).map_err(|_| malformed())?;
            }
            (2, Value::Float(number)) => score = number,
            (3, Value::Number(number)) => kind = number as i32,
            _ => {}
        }
    }
    vocabulary.tokens.push(text);
    vocabulary.scores.push(score);
    vocabulary.types.push(kind);
    Ok(())
}

fn read_trainer(trainer: &[u8], vocabulary: &mut Vocabulary) -> Result<(), TextError> {
    let mut message = Message(trainer);
    // The defaults of the format.
    (vocabulary.unknown, vocabulary.bos, vocabulary.eos) = (Some(0), Some(1), Some(2));
    while let Some((field, value)) = message.next()? {
        let Value::Number(number) = value else {
            continue;
        };
        let id = u32::try_from(number).ok();
        match field {
            3 => {
                let name = match number {
                    UNIGRAM => "t5",
                    BPE => "llama",
                    other => {
                        return Err(TextError::failed(format!(
                            "its model type is {other}, neither unigram (1) nor BPE (2)"
                        )))
                    }
                };
                name.clone_into(&mut vocabulary.model);
            }
            24 if number != 0 => {
                return Err(TextError::failed(
                    "it writes white space behind words, which is not supported",
                ))
            }
            40 => vocabulary.unknown = id,
            41 => vocabulary.bos = id,
            42 => vocabulary.eos = id,
            _ => {}
        }
    }
    Ok(())
}

fn read_normalizer(normalizer: &[u8], vocabulary: &mut Vocabulary) -> Result<(), TextError> {
    let mut message = Message(normalizer);
    while let Some((field, value)) = message.next()? {
        match (field, value) {
            (2, Value::Bytes(charsmap)) => {
                vocabulary.precompiled_charsmap = charsmap.to_vec();
            }
            (3, Value::Number(flag)) => vocabulary.add_space_prefix = Some(flag != 0),
            (4, Value::Number(flag)) => vocabulary.remove_extra_whitespaces = Some(flag != 0),
            (5, Value::Number(0)) => {
                return Err(TextError::failed(
                    "it does not mark white space, which is not supported",
                ))
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_models_are_refused() {
        let model = [0x0a, 0x05, 0x0a, 0x01, b'a', 0x18, 0x01];
        assert_eq!(read(&model).map(|v| v.tokens).unwrap_or_default(), ["a"]);
        for end in 1..model.len() {
            assert!(read(&model[..end]).is_err());
        }
    }
}
