//! What is read, what is refused, and how the messages look.

use super::*;

const GOOD: &str = "\
name: busy-carriers
plugins:
  flights: plugins/flights.wasm
  strict: {path: strict.wasm, config: {minutes: 15}, limits: {memory: 64MiB, time: 1s}}
sources:
  flights:
    connector: file
    path: examples/data/flights/*.jsonl
    format: json
    options: {header: true, null_value: NA}
    max_files_per_trigger: 1
    schema: {carrier: string, dep_delay: double, ts: timestamp}
    on_malformed: drop
steps:
  - filter: dep_delay IS NOT NULL
    name: known
  - plugin: flights.classify
  - select: ['*', {twice: dep_delay * 2}]
  - sql: SELECT carrier FROM input
trigger: {processing_time: 10 seconds}
sink: {connector: console, format: json}
checkpoint: ./checkpoints/busy-carriers
time_zone: Europe/Berlin
";

fn refused(text: &str) -> String {
    PipelineFile::read(text, "p.yaml", &[]).expect_err("refused").message().to_owned()
}

#[test]
fn reads_the_designs_example() {
    let file = PipelineFile::read(GOOD, "p.yaml", &[]).expect("reads");
    assert_eq!(file.name.value, "busy-carriers");
    let strict = file.plugins["strict"].options();
    assert_eq!(strict.config["minutes"], 15);
    assert_eq!(strict.limits.memory, Some(ByteSize(64 << 20)));
    assert_eq!(file.plugins["flights"].options().path.value, "plugins/flights.wasm");
    let SourceSpec::File(source) = &file.sources.value["flights"] else { panic!("a file source") };
    assert_eq!(
        ("flights", source.format, source.on_malformed),
        ("flights", Format::Json, pelton_core::MalformedPolicy::Drop)
    );
    assert_eq!(source.options.texts()["null_value"], "NA");
    let Some(SchemaSpec::Columns(columns)) = &source.schema else { panic!("columns") };
    assert_eq!(columns.0[1].name.value, "dep_delay");
    assert_eq!((columns.0[1].text.span.line, columns.0[1].text.span.column), (12, 42));
    assert_eq!(Trigger::from(file.trigger).to_string(), "processing_time 10 seconds");
    assert_eq!(file.steps.len(), 4);
    assert!(
        matches!(&file.steps[0], StepSpec::Filter(f) if f.name.as_ref().is_some_and(|n| n.value == "known"))
    );
    assert!(
        matches!(&file.sink, SinkSpec::Console(c) if c.format == ConsoleFormat::Json && c.num_rows == 20)
    );
}

#[test]
fn reads_json() {
    let text = r#"{"name": "q", "sources": {"r": {"connector": "rate"}}, "sink": {"connector": "memory"}}"#;
    let file = PipelineFile::read(text, "p.json", &[]).expect("reads");
    assert!(matches!(&file.sources.value["r"], SourceSpec::Rate(r) if r.rows_per_second.value == 1));
}

#[test]
fn an_unknown_key_is_shown_with_the_nearest_right_one() {
    let text = GOOD.replace("max_files_per_trigger", "max_file_per_trigger");
    assert_eq!(
        refused(&text),
        "p.yaml:11:5: there is no key 'max_file_per_trigger' here; did you mean 'max_files_per_trigger'?\n   |\n\
         11 |     max_file_per_trigger: 1\n   |     ^^^^^^^^^^^^^^^^^^^^"
    );
    let first = |text: &str| refused(text).lines().next().unwrap_or_default().to_owned();
    assert_eq!(
        first(&GOOD.replace("- filter", "- fiter")),
        "p.yaml:15:5: there is no step 'fiter'; did you mean 'filter'?"
    );
    assert_eq!(
        first(&GOOD.replace("connector: file", "connector: flie")),
        "p.yaml:7:16: 'flie' is not possible here; did you mean 'file'?"
    );
    assert_eq!(
        first(&GOOD.replace("Europe/Berlin", "Europe/Berln")),
        "p.yaml:23:12: there is no time zone 'Europe/Berln'; did you mean 'Europe/Berlin'?"
    );
}

#[test]
fn a_wrong_type_is_shown_in_its_place() {
    let first = |text: &str| refused(text).lines().next().unwrap_or_default().to_owned();
    assert_eq!(
        first(&GOOD.replace("max_files_per_trigger: 1", "max_files_per_trigger: many")),
        "p.yaml:11:28: expected u64, found the text 'many'"
    );
    assert_eq!(
        first(&GOOD.replace("10 seconds", "10 secnds")),
        "p.yaml:20:28: '10 secnds' is not a duration: there is no unit 'secnds'; did you mean 'second'?"
    );
    assert_eq!(
        first(&GOOD.replace("64MiB", "64 MiBs")),
        "p.yaml:4:71: '64 MiBs' is not a number of bytes; write for example '64MiB'"
    );
    assert_eq!(
        first(&GOOD.replace("    path: examples/data/flights/*.jsonl\n", "")),
        "p.yaml:7:5: the key 'path' is missing here"
    );
    assert_eq!(
        first(&GOOD.replace("  - plugin: flights.classify\n", "  - plugin: a.b\n    sql: SELECT 1\n")),
        "p.yaml:18:5: a step does one thing; 'plugin' and 'sql' are two steps"
    );
}

#[test]
fn what_does_not_exist_yet_is_refused_not_ignored() {
    let first = |text: &str| refused(text).lines().next().unwrap_or_default().to_owned();
    let orc = first(&GOOD.replace("    format: json", "    format: orc"));
    assert!(orc.contains("'orc' is not supported in this version, which has: json, "), "{orc}");
    assert!(first(&GOOD.replace("  - plugin: flights.classify", "  - limit: 3")).contains("`sql` step"));
}

#[test]
fn event_time_and_tables_are_read() {
    let text = GOOD.replace("    on_malformed: drop", "    watermark: {column: ts, delay: 1 month}")
        + "tables: {d: {schema: {k: string}, rows: [{k: a}]}}\nwatermark_policy: max\non_late: dead_letter\n\
           accept_changed_state: [sql.aggregate]\n";
    let text =
        text.replace("  - plugin: flights.classify", "  - dedup: {columns: [a], within_watermark: true}");
    let file = PipelineFile::read(&text, "p.yaml", &[]).expect("reads");
    let watermark = file.sources.value["flights"].watermark().expect("a watermark");
    assert_eq!(watermark.value.delay.interval().as_millis(), 31 * 86_400_000);
    assert_eq!(file.tables["d"].value.rows.as_ref().map(Vec::len), Some(1));
    assert_eq!((file.watermark_policy, file.on_late), (WatermarkPolicySpec::Max, LatePolicy::DeadLetter));
    assert!(file.no_data_batches);
    assert_eq!(file.accept_changed_state[0].value, "sql.aggregate");
    let dedup = file.steps.iter().find_map(|step| match step {
        StepSpec::Dedup(dedup) => Some(dedup.dedup.value.parts()),
        _ => None,
    });
    assert!(matches!(dedup, Some((Some([column]), true)) if column.value == "a"));
}

#[test]
fn names_that_sql_could_not_tell_apart_are_refused() {
    let first = |text: &str| refused(text).lines().next().unwrap_or_default().to_owned();
    let table = "tables: {flights: {schema: {k: string}, rows: []}}\n";
    assert!(first(&format!("{GOOD}{table}")).contains("'flights' is the name of a source already"));
    assert!(
        first(&format!("{GOOD}{}", table.replace("flights", "input"))).contains("'input' is the step before")
    );
}

#[test]
fn set_replaces_and_adds_values() {
    let sets = [
        "sources.flights.max_files_per_trigger=7",
        "trigger=once",
        "steps.0.filter=carrier = 'UA'",
        "dead_letters=./dead",
    ];
    let file = PipelineFile::read(GOOD, "p.yaml", &sets.map(String::from)).expect("reads");
    let SourceSpec::File(source) = &file.sources.value["flights"] else { panic!("a file source") };
    assert_eq!(source.max_files_per_trigger.as_ref().map(|n| n.value), Some(7));
    assert_eq!(file.trigger, TriggerSpec::Once);
    assert!(matches!(&file.steps[0], StepSpec::Filter(f) if f.filter.value == "carrier = 'UA'"));
    assert_eq!(
        file.dead_letters.as_ref().and_then(|d| d.directory()).map(|d| d.value.as_str()),
        Some("./dead")
    );

    let wrong = |set: &str| {
        PipelineFile::read(GOOD, "p.yaml", &[set.to_owned()]).expect_err("refused").message().to_owned()
    };
    assert_eq!(
        wrong("trigger=sometimes"),
        "--set trigger=sometimes: 'sometimes' is not possible here; there are: as_fast_as_possible, once, available_now, processing_time"
    );
    assert!(wrong("nonsense").contains("expected KEY=VALUE"));
    assert_eq!(
        wrong("steps.9.filter=x"),
        "--set steps.9.filter=x: '9' is not one of the list's 4 items, which count from 0"
    );
}

#[test]
fn a_trigger_on_the_command_line() {
    assert_eq!(TriggerSpec::parse("once").expect("reads"), TriggerSpec::Once);
    assert_eq!(
        TriggerSpec::parse("10 seconds").expect("reads"),
        TriggerSpec::ProcessingTime(Duration::parse("10 seconds").expect("reads"))
    );
    assert!(TriggerSpec::parse("sometimes").is_err());
}

#[test]
fn the_json_schema_knows_every_key_and_every_word() {
    let text = PipelineFile::json_schema().to_string();
    for word in
        ["max_files_per_trigger", "as_fast_as_possible", "dead_letter", "partition_by", "\"const\":\"rate\""]
    {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
}

#[test]
fn reads_the_sinks_that_last() {
    let sink = |text: &str| {
        let text = GOOD.replace("{connector: console, format: json}", text);
        PipelineFile::read(&text, "p.yaml", &[]).map(|file| file.sink)
    };
    let Ok(SinkSpec::Plugin(plugin)) = sink("{connector: plugin, plugin: flights.store}") else {
        panic!("a plugin")
    };
    assert_eq!(plugin.plugin.value, "flights.store");
    let postgres = "{connector: postgres, url: 'postgresql://ann:s3cret@db/x', table: a.b, key: [k]}";
    let Ok(SinkSpec::Postgres(table)) = sink(postgres) else { panic!("a table") };
    assert_eq!((table.table.value.as_str(), table.key.len(), table.create_table), ("a.b", 1, true));
    let error = sink(&postgres.replace("key", "keys")).expect_err("refused");
    assert!(error.message().contains("there is no key 'keys' here; did you mean 'key'?"), "{error}");
    assert!(!error.message().contains("s3cret"), "{error}");
}

#[test]
fn memory_for_the_state_without_a_unit_is_refused_at_its_place() {
    assert_eq!(
        refused(&format!("{GOOD}state: {{memory: 10}}\n")),
        "p.yaml:24:17: the state needs memory: 1MiB or more, not 10 bytes; write it with a unit, for example memory: 2GiB (left \
         out it is a quarter of the machine's)\n   |\n24 | state: {memory: 10}\n   |                 ^^"
    );
    let enough = PipelineFile::read(&format!("{GOOD}state: {{memory: 1MiB}}\n"), "p.yaml", &[]);
    assert_eq!(enough.expect("reads").state.memory.map(|memory| memory.value), Some(ByteSize(1 << 20)));
}
