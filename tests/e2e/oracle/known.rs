//! Where Pelton means to differ from Spark, with the reason.

/// A deliberate difference.
pub(super) struct Known {
    /// The case.
    pub(super) id: &'static str,
    /// Why.
    pub(super) reason: &'static str,
    /// What differs, in the words of the comparison: so Pelton's own answer is held fast too.
    pub(super) differences: &'static [&'static str],
}

/// All of them.
pub(super) const KNOWN: &[Known] = &[
    Known {
        id: "06_stream_stream_join/null_keys_full_outer",
        reason: "NULL keys match in no join; Spark's full outer join matches them",
        differences: &[
            r#"batch 0: rows: only Spark [{"lk":null,"v":1,"lt":"2026-01-01T00:10:00.000Z","rk":null,"w":10,"rt":"2026-01-01T00:11:00.000Z"}], only here []"#,
            r#"batch 3: rows: only Spark [], only here [{"lk":null,"v":null,"lt":null,"rk":null,"w":10,"rt":"2026-01-01T00:11:00.000Z"}]"#,
            r#"batch 5: rows: only Spark [], only here [{"lk":null,"v":1,"lt":"2026-01-01T00:10:00.000Z","rk":null,"w":null,"rt":null}]"#,
        ],
    },
    Known {
        id: "06_stream_stream_join/full_outer_right_watermark_only",
        reason: "NULL keys match in no join; with one watermark their rows are never certain to be unmatched",
        differences: &[
            r#"batch 0: rows: only Spark [{"lk":null,"v":3,"lt":"2026-01-01T00:12:00.000Z","rk":null,"w":12,"rt":"2026-01-01T00:12:00.000Z"}], only here []"#,
        ],
    },
    Known {
        id: "10_recovery/multi_watermark_restart_resets_per_source",
        reason: "each source's own watermark is kept over a restart; Spark keeps only the query's",
        differences: &[
            r#"batch 3: no_data: Spark false, here true"#,
            r#"batch 3: watermark: Spark "2026-01-01T00:50:00.000Z", here "2026-01-01T02:20:00.000Z""#,
            r#"batch 3: state rows: Spark 4, here 2"#,
            r#"batch 3: rows: only Spark [], only here [{"window":{"start":"2026-01-01T01:00:00.000Z","end":"2026-01-01T01:10:00.000Z"},"n":1}]"#,
            r#"batch 4: no_data: Spark true, here false"#,
            r#"batch 4: rows: only Spark [{"window":{"start":"2026-01-01T01:00:00.000Z","end":"2026-01-01T01:10:00.000Z"},"n":1}], only here []"#,
        ],
    },
    Known {
        id: "08_chained/two_aggregations_allow_multiple_false",
        reason: "a Spark setting that makes the second operator drop what the first has just given; there is none such",
        differences: &[
            r#"batch 9: late rows: Spark true, here false"#,
            r#"batch 9: rows: only Spark [{"window":{"start":"2026-01-01T00:00:00.000Z","end":"2026-01-01T00:15:00.000Z"},"n":3,"total":7,"mx":4}], only here [{"window":{"start":"2026-01-01T00:00:00.000Z","end":"2026-01-01T00:15:00.000Z"},"n":4,"total":15,"mx":8}]"#,
            r#"batch 11: late rows: Spark true, here false"#,
            r#"batch 11: rows: only Spark [], only here [{"window":{"start":"2026-01-01T00:15:00.000Z","end":"2026-01-01T00:30:00.000Z"},"n":3,"total":112,"mx":64}]"#,
            r#"batch 13: late rows: Spark true, here false"#,
            r#"batch 13: rows: only Spark [], only here [{"window":{"start":"2026-01-01T00:30:00.000Z","end":"2026-01-01T00:45:00.000Z"},"n":1,"total":128,"mx":128}]"#,
        ],
    },
    Known {
        id: "07_group_state/event_timeout_without_state",
        reason: "a group with neither state nor timeout is forgotten; Spark keeps an empty row of it for ever",
        differences: &[r#"batch 3: state rows: Spark 2, here 1"#],
    },
    Known {
        id: "07c_scala_group_state/remove_then_timeout",
        reason: "a group with neither state nor timeout is forgotten; Spark keeps an empty row of it for ever",
        differences: &[r#"batch 3: state rows: Spark 2, here 1"#],
    },
    Known {
        id: "07b_transform_with_state/hdfs_provider_refused",
        reason: "a limit of one of Spark's state stores; here there is one store, which has all that is needed",
        differences: &[
            r#"Spark refuses it: "[UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS] The feature is not supported: Store backend org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider is not supported by TransformWithState operator. Please use RocksDBStateStoreProvider. SQLSTATE: 0A000 SQLSTATE: XXKST""#,
            r#"Spark runs no batch 0"#,
        ],
    },
    Known {
        id: "08_chained/aggregate_then_group_state_refused",
        reason: "only Spark's Python interface refuses it; its Scala interface runs it",
        differences: &[
            r#"Spark refuses it: "applyInPandasWithState in append mode is not supported after aggregation on a streaming DataFrame/Dataset""#,
        ],
    },
    Known {
        id: "restart/sources_swapped_union",
        reason: "sources are known by their names and not by their position: nothing was changed",
        differences: &[
            r#"Spark refuses it: "Wrong basePath <path> for the root path: <path> SQLSTATE: XXKST""#,
            r#"Spark runs no batch 2"#,
        ],
    },
];

/// What is left of the differences of a case without those that are meant. A meant one that does not occur is
/// a difference too: the table must be true.
pub(super) fn unmeant(id: &str, differences: Vec<String>) -> Vec<String> {
    let Some(known) = KNOWN.iter().find(|known| known.id == id) else { return differences };
    let meant = |difference: &String| known.differences.contains(&difference.as_str());
    let gone = known.differences.iter().filter(|meant| !differences.iter().any(|found| found == **meant));
    let gone: Vec<String> =
        gone.map(|meant| format!("the difference '{meant}' is gone ({})", known.reason)).collect();
    differences.into_iter().filter(|difference| !meant(difference)).chain(gone).collect()
}
