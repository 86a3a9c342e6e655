//! Nouns behind counts, for messages and tables that a person reads.

/// `row` for one, `rows` for none or several; `micro-batch` becomes `micro-batches`.
pub fn plural(count: u64, one: &str) -> String {
    match count {
        1 => one.to_owned(),
        _ if one.ends_with("ch") => format!("{one}es"),
        _ => format!("{one}s"),
    }
}

/// `1 row`, `2 rows`.
pub fn counted(count: u64, one: &str) -> String {
    format!("{count} {}", plural(count, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_several() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "row")), ["0 rows", "1 row", "2 rows"]);
        assert_eq!(counted(3, "micro-batch"), "3 micro-batches");
    }
}
