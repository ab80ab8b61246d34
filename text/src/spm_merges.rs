//! Merges of a SentencePiece BPE vocabulary, which holds scores instead: every way to cut a piece
//! into two other pieces, in transformers' order.

use std::cmp::Ordering;
use std::collections::HashMap;

struct Merge<'a> {
    score: f32,
    left: &'a str,
    right: &'a str,
    left_length: usize,
    right_length: usize,
}

/// `pieces` are the mergeable pieces with id and score. Sorted by score, then length in characters
/// of the left part, then of the right, all descending; equal ones in vocabulary order.
pub fn merges_from_scores(pieces: &[(&str, u32, f32)]) -> Vec<(String, String)> {
    let ids: HashMap<&str, u32> = pieces.iter().map(|(piece, id, _)| (*piece, *id)).collect();
    let mut merges = Vec::new();
    for (piece, _, score) in pieces {
        let length = piece.chars().count();
        let mut cuts = Vec::new();
        for (left_length, (index, _)) in piece.char_indices().enumerate().skip(1) {
            let (left, right) = piece.split_at(index);
            if let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) {
                let merge = Merge {
                    score: *score,
                    left,
                    right,
                    left_length,
                    right_length: length - left_length,
                };
                cuts.push(((*left_id, *right_id), merge));
            }
        }
        cuts.sort_by_key(|(cut_ids, _)| *cut_ids);
        merges.extend(cuts.into_iter().map(|(_, merge)| merge));
    }
    merges.sort_by(|a, b| {
        b.score
            .partial_cmp(&a.score)
            .unwrap_or(Ordering::Equal)
            .then(b.left_length.cmp(&a.left_length))
            .then(b.right_length.cmp(&a.right_length))
    });
    merges
        .into_iter()
        .map(|merge| (merge.left.to_owned(), merge.right.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_left_parts_come_first_among_equal_scores() {
        let pieces = [
            ("a", 0, 0.0),
            ("b", 1, 0.0),
            ("ab", 2, -1.0),
            ("abb", 3, -2.0),
            ("bb", 4, -2.0),
        ];
        let merges = merges_from_scores(&pieces);
        let expected = [("a", "b"), ("ab", "b"), ("a", "bb"), ("b", "b")];
        let found: Vec<(&str, &str)> = merges
            .iter()
            .map(|(left, right)| (left.as_str(), right.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}
