//! What functions make of rows, nulls, refusals, configuration and mismatched schemas.
#![allow(clippy::unwrap_used)]

use pelton::testing::function;
use pelton::{Clock, Config, Context, Emit, Error, Row, Timestamp};

#[derive(Row, Clone)]
struct Person<'a> {
    name: Option<&'a str>,
    age: Option<i32>,
}

const PEOPLE: [Person<'static>; 3] = [
    Person { name: Some("Ada"), age: Some(36) },
    Person { name: None, age: Some(5) },
    Person { name: Some("Bob"), age: None },
];

#[derive(Row, Debug, PartialEq)]
struct Greeting {
    text: String,
}

#[derive(Row)]
struct Named<'a> {
    name: &'a str,
}

/// Greets.
///
/// Not part of the short description.
#[pelton::map]
fn greet(person: Named<'_>) -> Greeting {
    Greeting { text: format!("hello {}", person.name) }
}

fn reasons(answer: &pelton::testing::Answer) -> Vec<(u32, &str)> {
    answer.rejected().iter().map(|r| (r.row, r.reason.as_str())).collect()
}

#[test]
fn a_null_without_a_place_refuses_its_row_alone() {
    let answer = function::<greet>().rows(PEOPLE).unwrap();
    let greeting = |text: &str| Greeting { text: text.to_owned() };
    assert_eq!(answer.rows::<Greeting>().unwrap(), [greeting("hello Ada"), greeting("hello Bob")]);
    assert_eq!(reasons(&answer), [(1, "column 'name' is null")]);
}

#[test]
fn a_null_deep_inside_is_named_by_its_path() {
    #[derive(Row)]
    struct Outer<'a> {
        people: Vec<Person<'a>>,
    }
    #[derive(Row)]
    struct Strict<'a> {
        people: Vec<Named<'a>>,
    }
    #[derive(Row)]
    struct Count {
        count: i64,
    }
    #[pelton::map]
    fn count(row: Strict) -> Count {
        Count { count: row.people.len() as i64 }
    }
    let answer = function::<count>().rows([Outer { people: PEOPLE.to_vec() }]).unwrap();
    assert_eq!(reasons(&answer), [(0, "column 'people.name' is null")]);
}

#[derive(Row)]
struct Age {
    age: Option<i64>,
}

#[pelton::filter]
fn is_adult(person: Age) -> Option<bool> {
    Some(person.age? >= 18)
}

#[pelton::scalar]
fn describe(name: &str, age: Option<i64>, context: &Context) -> Result<String, String> {
    match age {
        Some(age) => Ok(format!("{name} is {age} in batch {}", context.batch_id())),
        None => Err(format!("{name} has no age")),
    }
}

#[test]
fn a_filter_reads_by_name_and_widens() {
    let answer = function::<is_adult>().rows(PEOPLE).unwrap();
    assert_eq!(answer.column::<Option<bool>>().unwrap(), [Some(true), Some(false), None]);
}

#[test]
fn scalar_arguments_are_matched_in_order() {
    let clock = Clock { batch_id: 7, ..Clock::default() };
    let answer = function::<describe>().clock(clock).rows(PEOPLE).unwrap();
    let texts: Vec<Option<&str>> = answer.column().unwrap();
    assert_eq!(texts[0], Some("Ada is 36 in batch 7"));
    assert_eq!(reasons(&answer), [(1, "argument 1 is null"), (2, "Bob has no age")]);
}

#[test]
fn a_struct_takes_unnamed_arguments_in_order() {
    #[derive(Row)]
    struct Expression {
        #[row(name = "age + 1")]
        value: i32,
    }
    let answer = function::<is_adult>().rows([Expression { value: 20 }]).unwrap();
    assert_eq!(answer.column::<Option<bool>>().unwrap(), [Some(true)]);
}

fn refusal<F: pelton::__private::Exported, R: Row>(row: R) -> String {
    match function::<F>().rows([row]) {
        Err(Error::Unsuitable(message)) => message,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was accepted"),
    }
}

#[test]
fn mismatched_columns_are_named_with_both_types() {
    #[derive(Row)]
    struct Misspelt {
        nane: String,
    }
    #[derive(Row)]
    struct Number {
        name: f32,
    }
    assert_eq!(
        refusal::<greet, _>(Misspelt { nane: String::new() }),
        "there is no column 'name'; did you mean 'nane'?"
    );
    assert_eq!(
        refusal::<greet, _>(Number { name: 1.0 }),
        "column 'name' is of type float, but the function reads it as string"
    );
    assert_eq!(refusal::<describe, _>(Number { name: 1.0 }), "the function takes 2 arguments instead of 1");
}

#[pelton::flat_map]
fn letters<'a>(person: &Named<'a>) -> impl Iterator<Item = Letter<'a>> {
    let name = person.name;
    name.char_indices().map(move |(at, c)| Letter { letter: &name[at..at + c.len_utf8()] })
}

#[derive(Row, Debug, PartialEq, Clone)]
struct Letter<'a> {
    letter: &'a str,
}

#[pelton::flat_map]
fn halves<'a>(person: Named<'a>) -> Result<[Letter<'a>; 2], String> {
    let middle = person.name.len() / 2;
    let (a, b) = person.name.split_at_checked(middle).ok_or("no middle")?;
    if a.is_empty() {
        return Err(format!("'{b}' is too short"));
    }
    Ok([Letter { letter: a }, Letter { letter: b }])
}

#[pelton::flat_map]
fn stutter(person: Named<'_>, out: &mut Emit<Greeting>) -> Result<(), String> {
    for c in person.name.chars() {
        if c == 'z' {
            return Err("z".to_owned());
        }
        out.row(Greeting { text: c.to_string() });
    }
    Ok(())
}

#[test]
fn flat_maps_return_iterators_arrays_or_emit() {
    let named = |names: &'static [&'static str]| names.iter().map(|name| Named { name });
    let texts = |answer: &pelton::testing::Answer| -> Vec<String> {
        answer.rows::<Letter>().unwrap().iter().map(|l| l.letter.to_owned()).collect()
    };
    assert_eq!(texts(&function::<letters>().rows(named(&["ab", "", "c"])).unwrap()), ["a", "b", "c"]);
    let answer = function::<halves>().rows(named(&["ab", "c"])).unwrap();
    assert_eq!(texts(&answer), ["a", "b"]);
    assert_eq!(reasons(&answer), [(1, "'c' is too short")]);
    let answer = function::<stutter>().rows(named(&["a", "bz", "c"])).unwrap();
    let greetings: Vec<String> = answer.rows::<Greeting>().unwrap().into_iter().map(|g| g.text).collect();
    assert_eq!(greetings, ["a", "c"], "what a refused row emitted is forgotten");
}

#[derive(Config)]
struct Settings {
    word: String,
    #[config(default = 2_i64)]
    times: i64,
    mode: Option<Mode>,
}

#[derive(Config, PartialEq)]
enum Mode {
    Loud,
    VeryLoud,
}

#[pelton::map]
fn shout(person: Named, settings: &Settings) -> Option<Greeting> {
    let mark = match settings.mode {
        None => "",
        Some(Mode::Loud) => "!",
        Some(Mode::VeryLoud) => "!!!",
    };
    let text = format!("{} {}{mark}", settings.word.repeat(settings.times as usize), person.name);
    (settings.times > 0).then_some(Greeting { text })
}

#[test]
fn configuration_is_typed_and_its_mistakes_are_named() {
    let shouted = |config: &str| {
        let answer = function::<shout>().config(config).rows([Named { name: "Ada" }])?;
        Ok(answer.rows::<Greeting>()?.into_iter().map(|g| g.text).collect::<Vec<_>>())
    };
    let error = |config: &str| match shouted(config) {
        Err(Error::Unsuitable(message)) => message,
        other => panic!("{other:?}"),
    };
    assert_eq!(shouted(r#"{"word": "ho"}"#), Ok(vec!["hoho Ada".to_owned()]));
    assert_eq!(
        shouted(r#"{"word": "ho", "times": 1, "mode": "very_loud"}"#),
        Ok(vec!["ho Ada!!!".to_owned()])
    );
    assert_eq!(shouted(r#"{"word": "ho", "times": 0}"#), Ok(vec![]));
    assert_eq!(error("{}"), "the plugin's config needs 'word'");
    assert_eq!(error(r#"{"wrod": "ho"}"#), "the plugin's config has no key 'wrod'; did you mean 'word'?");
    assert_eq!(error(r#"{"word": 1}"#), "'word' in the plugin's config must be a text instead of a number");
    assert_eq!(
        error(r#"{"word": "", "times": 1.5}"#),
        "'times' in the plugin's config must be a whole number that fits i64 instead of a number"
    );
    assert_eq!(
        error(r#"{"word": "", "mode": "lout"}"#),
        "'mode' in the plugin's config cannot be 'lout'; did you mean 'loud'?"
    );
}

#[pelton::map]
fn look_around(_: Named, context: &Context) -> Option<Greeting> {
    pelton::info!("batch {}", context.batch_id());
    pelton::count("seen", 2);
    let text = format!("{:?} {:?}", context.processing_time(), context.watermark());
    Some(Greeting { text })
}

#[test]
fn the_context_the_log_and_the_counters_are_those_of_the_call() {
    let clock = Clock { batch_id: 3, processing_time: Timestamp(5), watermark: Some(Timestamp(4)), seed: 1 };
    let named = [Named { name: "a" }, Named { name: "b" }];
    let answer = function::<look_around>().clock(clock).rows(named).unwrap();
    assert_eq!(answer.rows::<Greeting>().unwrap()[0].text, "Timestamp(5) Some(Timestamp(4))");
    assert_eq!(answer.logs(), vec![(pelton::Level::Info, "batch 3".to_owned()); 2]);
    assert_eq!(answer.counters()["seen"], 4);
}
