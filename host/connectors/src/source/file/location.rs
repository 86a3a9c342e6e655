//! Where files are: local paths and URLs with Hadoop's glob patterns, taken apart into a directory without
//! patterns (the base) and the patterns below it.

use super::super::Stores;
use globset::{GlobBuilder, GlobMatcher};
use object_store::ObjectStore;
use pelton_core::{Error, Result};
use std::sync::Arc;

/// One path of a source.
#[derive(Debug, Clone)]
pub(super) struct Location {
    /// As it was written up to the first pattern, for messages.
    given_base: String,
    /// The directory (or file) without patterns: absolute, or a key in the store. No slash at the end.
    pub(super) base: String,
    /// What comes below it, a pattern for each level.
    pub(super) patterns: Vec<Level>,
    pub(super) place: Place,
}

/// What holds the files.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Local,
    /// A store and the beginning of its URLs: `s3://bucket`.
    Remote {
        store: Arc<dyn ObjectStore>,
        root: String,
    },
}

/// A pattern for the names of one level of directories.
#[derive(Debug, Clone)]
pub(super) enum Level {
    Name(String),
    Pattern(GlobMatcher),
    /// `**`: any number of levels.
    AnyDepth,
}

impl Level {
    fn parse(text: &str) -> Result<Self> {
        if text == "**" {
            return Ok(Self::AnyDepth);
        }
        if !text.contains(GLOB) {
            return Ok(Self::Name(text.replace('\\', "")));
        }
        let glob = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
        let glob =
            glob.map_err(|e| Error::invalid(format!("'{text}' is not a pattern for files: {}", e.kind())))?;
        Ok(Self::Pattern(glob.compile_matcher()))
    }

    /// Whether a name fits this level.
    pub(super) fn fits(&self, name: &str) -> bool {
        match self {
            Self::Name(wanted) => wanted == name,
            Self::Pattern(glob) => glob.is_match(name),
            Self::AnyDepth => true,
        }
    }
}

const GLOB: [char; 5] = ['*', '?', '[', '{', '\\'];

impl Location {
    /// Reads a path; braces with slashes in them give several. The error is of kind `Invalid`.
    pub(super) fn parse(text: &str, stores: &Stores) -> Result<Vec<Self>> {
        if text.trim().is_empty() {
            return Err(Error::invalid("a path is empty"));
        }
        expand(text)?.iter().map(|path| Self::parse_one(path, stores)).collect()
    }

    fn parse_one(text: &str, stores: &Stores) -> Result<Self> {
        let (place, path) = match text.split_once("://") {
            Some(("file", path)) => (Place::Local, path.to_owned()),
            Some((scheme, rest)) => {
                let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
                let root = format!("{scheme}://{authority}");
                (Place::Remote { store: stores.open(&root)?, root }, path.to_owned())
            }
            None => (Place::Local, text.strip_prefix("file:").unwrap_or(text).to_owned()),
        };
        let levels: Vec<&str> = path.split('/').filter(|level| !level.is_empty() && *level != ".").collect();
        let fixed = levels.iter().take_while(|level| !level.contains(GLOB)).count();
        let patterns = levels[fixed..].iter().map(|level| Level::parse(level)).collect::<Result<Vec<_>>>()?;
        let root = if path.starts_with('/') && matches!(place, Place::Local) { "/" } else { "" };
        let given = format!("{root}{}", levels[..fixed].join("/"));
        let base = match &place {
            Place::Local => absolute(&given)?,
            Place::Remote { .. } => given.clone(),
        };
        let given_base = match &place {
            Place::Local => given,
            Place::Remote { root, .. } => format!("{root}/{given}").trim_end_matches('/').to_owned(),
        };
        Ok(Self { given_base, base, patterns, place })
    }

    /// The base as files' paths show it.
    pub(super) fn shown_base(&self) -> String {
        self.full(&self.base)
    }

    /// A path below, as the log has it: absolute, or a URL.
    pub(super) fn full(&self, path: &str) -> String {
        match &self.place {
            Place::Local => path.to_owned(),
            Place::Remote { root, .. } => format!("{root}/{path}"),
        }
    }

    /// What `full` was made from, if the path lies in this place.
    pub(super) fn local_part<'p>(&self, full: &'p str) -> Option<&'p str> {
        match &self.place {
            Place::Local => (!full.contains("://")).then_some(full),
            Place::Remote { root, .. } => full.strip_prefix(root.as_str())?.strip_prefix('/'),
        }
    }

    /// The part of a file's path below the base; `None` if it lies elsewhere.
    pub(super) fn below<'p>(&self, full: &'p str) -> Option<&'p str> {
        let rest = self.local_part(full)?.strip_prefix(self.base.as_str())?;
        if self.base.is_empty() || self.base.ends_with('/') || rest.is_empty() {
            return Some(rest);
        }
        rest.strip_prefix('/')
    }

    /// A file's path as the person who wrote the pipeline would write it.
    pub(super) fn shown(&self, full: &str) -> Option<String> {
        let below = self.below(full)?;
        Some(match (self.given_base.as_str(), below) {
            (base, "") => base.to_owned(),
            ("", below) => below.to_owned(),
            (base, below) if base.ends_with('/') => format!("{base}{below}"),
            (base, below) => format!("{base}/{below}"),
        })
    }
}

fn absolute(path: &str) -> Result<String> {
    let path = if path.is_empty() { "." } else { path };
    let absolute = std::path::absolute(path)
        .map_err(|e| Error::invalid(format!("'{path}' has no absolute path: {e}")).caused_by(e))?;
    let text = absolute.to_str().ok_or_else(|| Error::invalid(format!("'{path}' is not UTF-8")))?;
    Ok(if text == "/" { text.to_owned() } else { text.trim_end_matches('/').to_owned() })
}

/// Writes braces that have slashes in them out: `{a/b,c}/d` is `a/b/d` and `c/d`. Others are left alone.
fn expand(text: &str) -> Result<Vec<String>> {
    let Some(open) = text.find('{') else { return Ok(vec![text.to_owned()]) };
    let mut depth = 0;
    let mut cuts = vec![open];
    for (at, c) in text[open..].char_indices().map(|(at, c)| (open + at, c)) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => cuts.push(at),
            _ => {}
        }
        if depth == 0 {
            cuts.push(at);
            break;
        }
    }
    if depth != 0 {
        return Err(Error::invalid(format!("'{text}' is not a pattern for files: a brace is not closed")));
    }
    let end = cuts[cuts.len() - 1];
    let (head, inside, tail) = (&text[..open], &text[open..=end], &text[end + 1..]);
    if !inside.contains('/') {
        let rest = expand(tail)?;
        return Ok(rest.iter().map(|rest| format!("{head}{inside}{rest}")).collect());
    }
    let parts = cuts.windows(2).map(|cut| expand(&format!("{head}{}{tail}", &text[cut[0] + 1..cut[1]])));
    Ok(parts.collect::<Result<Vec<_>>>()?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Location {
        Location::parse(text, &Stores::default()).unwrap().remove(0)
    }

    #[test]
    fn paths_are_cut_at_the_first_pattern() {
        let location = parse("/data/year=*/x.json");
        assert_eq!((location.base.as_str(), location.patterns.len()), ("/data", 2));
        assert!(location.patterns[0].fits("year=2024"));
        assert!(!location.patterns[0].fits("month=1"));
        assert_eq!(parse("file:///data/*").base, "/data");
        assert_eq!(parse("memory:///in/*.csv").base, "in");
        assert_eq!(parse("memory:///in/*.csv").full("in/a.csv"), "memory:///in/a.csv");
    }

    #[test]
    fn files_are_shown_as_they_were_asked_for() {
        let location = parse("data/*.json");
        let full = format!("{}/a.json", location.base);
        assert!(full.starts_with('/'));
        assert_eq!(location.shown(&full).unwrap(), "data/a.json");
        assert_eq!(parse("*.json").shown(&format!("{}/a.json", parse("*").base)).unwrap(), "a.json");
        assert_eq!(parse("/data/a.json").shown("/data/a.json").unwrap(), "/data/a.json");
        assert_eq!(parse("/data").below("/database/x"), None);
    }

    #[test]
    fn hadoops_patterns_are_understood() {
        let fits = |pattern: &str, name: &str| Level::parse(pattern).unwrap().fits(name);
        assert!(fits("a?[0-9]", "ab7"));
        assert!(fits("{a,b}*", "bx"));
        assert!(fits("[^a]", "b") && !fits("[^a]", "a"));
        assert!(fits("\\*", "*") && !fits("\\*", "x"));
        assert!(Location::parse("/d/[a", &Stores::default()).is_err());
        let bases: Vec<String> =
            Location::parse("/{a/b,c}/d", &Stores::default()).unwrap().into_iter().map(|l| l.base).collect();
        assert_eq!(bases, ["/a/b/d", "/c/d"]);
    }
}
