//! The nearest right name for a wrong one, for error messages.

/// The candidate most like `name`, if any is alike enough to be worth naming. Case does not count.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, candidate)| candidate)
}

/// `; did you mean 'x'?` or, if nothing is near, `; there are: a, b, c` (nothing for no candidates).
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    match nearest(name, candidates.iter().copied()) {
        Some(near) => format!("; did you mean '{near}'?"),
        None if candidates.is_empty() => String::new(),
        None => format!("; there are: {}", candidates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_nearest_or_lists_all() {
        assert_eq!(nearest("fiter", ["select", "filter"]), Some("filter"));
        assert_eq!(nearest("Carier", ["carrier", "ts"]), Some("carrier"));
        assert_eq!(did_you_mean("zzz", ["a", "b"]), "; there are: a, b");
        assert_eq!(did_you_mean("zzz", []), "");
    }
}
