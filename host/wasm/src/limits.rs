//! What a plugin may use. The binary fills it from the pipeline file's `limits`; every other module here reads it.
//! It knows nothing of how the limits are enforced.

/// The bounds of one plugin. There is no way to switch one off, only to set it higher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The plugin's file; compiling takes time in proportion to it. Default 64 MiB.
    pub plugin_bytes: u64,
    /// Linear memory of one instance, all its memories together. Default 256 MiB.
    pub memory_bytes: u64,
    /// Table elements of one instance, all its tables together. Default 100,000.
    pub table_elements: u64,
    /// Core modules, memories and tables that one instance may be made of (each). Default 128.
    pub core_instances: u32,
    /// One call of the plugin, start functions included; opening a function is a call too. Default 10 s.
    /// Enforced to within [`crate::TICK_MS`].
    pub time_ms: u64,
    /// What one call may answer, rows, reasons and schemas together. Default 64 MiB.
    pub output_bytes: u64,
    /// Rows that one call may answer, elements of nested lists included. Default 4,194,304.
    pub output_rows: u64,
    /// The reason of a rejected row; longer ones are cut. Default 1 KiB.
    pub reason_bytes: usize,
    /// Log lines (standard output and error included) of one call; what exceeds it is counted and dropped.
    /// Default 64 KiB.
    pub log_bytes_per_call: u64,
    /// Log lines of all calls of the plugin within one second; the rest is counted and dropped. Default 1 MiB.
    pub log_bytes_per_second: u64,
    /// Different counters; further ones are dropped. Default 64.
    pub counters: usize,
    /// The name of a counter; longer ones are dropped. Default 64 bytes.
    pub counter_name_bytes: usize,
    /// The manifest, all its texts together. Default 1 MiB.
    pub manifest_bytes: u64,
    /// Functions in a manifest. Default 256.
    pub functions: usize,
    /// Columns of a schema that the plugin answers, nested ones included. Default 4,096.
    pub schema_columns: usize,
    /// How deep its types may be nested. Default 16.
    pub schema_depth: usize,
    /// Variables of a stateful function. Default 64.
    pub variables: usize,
    /// Changes of timers that one call may answer. Default 65,536.
    pub timers: usize,
    /// One HTTP request of a sink function, its answer included; it does not count as time of the call. Default 30 s.
    pub http_time_ms: u64,
    /// The body of the answer to one. Default 1 MiB.
    pub http_response_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            plugin_bytes: 64 << 20,
            memory_bytes: 256 << 20,
            table_elements: 100_000,
            core_instances: 128,
            time_ms: 10_000,
            output_bytes: 64 << 20,
            output_rows: 4 << 20,
            reason_bytes: 1 << 10,
            log_bytes_per_call: 64 << 10,
            log_bytes_per_second: 1 << 20,
            counters: 64,
            counter_name_bytes: 64,
            manifest_bytes: 1 << 20,
            functions: 256,
            schema_columns: 4_096,
            schema_depth: 16,
            variables: 64,
            timers: 1 << 16,
            http_time_ms: 30_000,
            http_response_bytes: 1 << 20,
        }
    }
}

/// `64 MiB`, `1.5 KiB`, `17 bytes`: for messages.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) if bytes.trailing_zeros() >= *shift => format!("{} {unit}", bytes >> shift),
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

/// `1 s`, `250 ms`: for messages.
pub(crate) fn time_text(ms: u64) -> String {
    if ms >= 1000 && ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}

/// A guest's text made fit for logs and terminals: at most `bytes_max` long, control characters (which could
/// move a terminal's cursor or forge log lines) replaced.
pub(crate) fn clean_text(text: &str, bytes_max: usize) -> String {
    let cut = text.len() > bytes_max;
    let end = text.floor_char_boundary(bytes_max);
    let clean = |c: char| if c.is_control() && c != '\t' { '\u{fffd}' } else { c };
    let mut text: String =
        text[..end].trim_end().chars().map(|c| if c == '\n' { ' ' } else { clean(c) }).collect();
    if cut {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_well() {
        assert_eq!(bytes_text(64 << 20), "64 MiB");
        assert_eq!(bytes_text((3 << 20) / 2), "1.5 MiB");
        assert_eq!(bytes_text(12), "12 bytes");
        assert_eq!(time_text(1000), "1 s");
        assert_eq!(time_text(1250), "1250 ms");
    }

    #[test]
    fn a_guests_text_cannot_steer_a_terminal() {
        assert_eq!(clean_text("a\x1b[2Jb\nc\n", 100), "a\u{fffd}[2Jb c");
        assert_eq!(clean_text("ä", 1), "…");
    }
}
