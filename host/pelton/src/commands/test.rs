//! `pelton test`: runs scripts that add rows to a pipeline and say which micro-batches are to come of them.
//!
//! Exit code 0: all as expected; 1: something was not; 2: a script is wrong. With `--print json` stdout has a line a
//! micro-batch, else a line a script; what differs goes with the latter, or to stderr.

mod compare;
mod expected;
mod normal;
mod script;
mod session;
mod sink;
mod source;
mod values;

use super::print_line;
use crate::cli::{ScriptArgs, ScriptPrint};
use crate::report;
use compare::Differences;
use pelton_core::{Error, Result};
use script::{Action, Addition, Script, Step};
use serde_json::json;
use session::{Failure, MicroBatch, Session};
use std::path::Path;
use std::process::ExitCode;

/// Runs all scripts, whatever becomes of one of them, and says what to exit with.
pub(crate) fn run(arguments: &ScriptArgs) -> Result<ExitCode> {
    let chosen: Vec<&Path> = arguments
        .scripts
        .iter()
        .map(|path| path.as_path())
        .filter(|path| arguments.filter.as_ref().is_none_or(|part| path.to_string_lossy().contains(part)))
        .collect();
    if chosen.is_empty() {
        let filter = arguments.filter.as_deref().unwrap_or_default();
        return Err(Error::invalid(format!("no script's path contains '{filter}'")));
    }
    let runtime = super::runtime(None)?;
    let (mut failed, mut wrong) = (0_usize, 0_usize);
    for path in &chosen {
        if arguments.print == Some(ScriptPrint::Json) && chosen.len() > 1 {
            print_line(&json!({"script": path.display().to_string()}).to_string())?;
        }
        match runtime.block_on(run_script(path, arguments)) {
            Ok(differences) => {
                failed += usize::from(!differences.is_empty());
                verdict(path, &differences, arguments.print)?;
            }
            Err(error) => {
                wrong += 1;
                report::print(&error);
            }
        }
    }
    summary(chosen.len(), failed, wrong, arguments.print)?;
    Ok(match (wrong, failed) {
        (0, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::from(1),
        _ => ExitCode::from(2),
    })
}

fn verdict(path: &Path, differences: &[String], print: Option<ScriptPrint>) -> Result<()> {
    let shown = path.display();
    let lines = differences.iter().flat_map(|difference| difference.lines()).map(|line| format!("  {line}"));
    let head = if differences.is_empty() { format!("ok      {shown}") } else { format!("FAILED  {shown}") };
    let text = [head].into_iter().chain(lines).collect::<Vec<_>>().join("\n");
    match print {
        Some(ScriptPrint::Json) if differences.is_empty() => Ok(()),
        Some(ScriptPrint::Json) => {
            crate::report::say(text);
            Ok(())
        }
        None => print_line(&text),
    }
}

fn summary(scripts: usize, failed: usize, wrong: usize, print: Option<ScriptPrint>) -> Result<()> {
    if print.is_some() {
        return Ok(());
    }
    let count = |n: usize, what: &str| (n > 0).then(|| format!("{n} {what}"));
    let plural = if scripts == 1 { "script" } else { "scripts" };
    let parts: Vec<String> = [count(failed, "failed"), count(wrong, "wrong")].into_iter().flatten().collect();
    print_line(&match parts.is_empty() {
        true => format!("{scripts} {plural}, all as expected"),
        false => format!("{scripts} {plural}, {}", parts.join(", ")),
    })
}

/// What differs. The error says that the script itself is wrong.
async fn run_script(path: &Path, arguments: &ScriptArgs) -> Result<Vec<String>> {
    let script = Script::read(path, &arguments.set)?;
    let file = match script.pipeline.read() {
        Ok(file) => file,
        Err(error) => return refused(&script, &Failure::new(&error), arguments.print),
    };
    let mut run = Run {
        script: &script,
        session: Session::new(&script, file, arguments)?,
        ran: Vec::new(),
        failure: None,
        differences: Differences::new(script.document.text()),
        print: arguments.print,
    };
    run.steps().await?;
    Ok(run.differences.into_texts())
}

/// A pipeline that cannot even be read: that may be what the script expects.
fn refused(script: &Script, failure: &Failure, print: Option<ScriptPrint>) -> Result<Vec<String>> {
    if print == Some(ScriptPrint::Json) {
        print_line(&failure.to_json().to_string())?;
    }
    let mut differences = Differences::new(script.document.text());
    match script.steps.first() {
        Some(Step { span, action: Action::Expect(expected) }) => {
            differences.expect(*span, expected, &[], Some(failure), "UTC");
        }
        other => {
            let span = other.map_or_else(|| script.document.root().span(), |step| step.span);
            differences.add(span, "the pipeline is refused", &failure.lines());
        }
    }
    Ok(differences.into_texts())
}

/// A script on its way.
struct Run<'a> {
    script: &'a Script,
    session: Session,
    /// What ran since the last `expect`.
    ran: Vec<MicroBatch>,
    /// The query has failed since then.
    failure: Option<Failure>,
    differences: Differences<'a>,
    print: Option<ScriptPrint>,
}

impl Run<'_> {
    async fn steps(&mut self) -> Result<()> {
        let decides = |step: &Step| matches!(step.action, Action::Stop | Action::Start(_));
        if self.session.runs_on() && !self.script.steps.first().is_some_and(decides) {
            let started = self.session.start(&[]).await;
            self.did(started)?;
        }
        for step in &self.script.steps {
            if let (Some(failure), false) = (&self.failure, matches!(step.action, Action::Expect(_))) {
                self.differences.add(step.span, "the query has failed before this step", &failure.lines());
                self.failure = None;
                return Ok(());
            }
            self.step(step).await?;
        }
        if let (Some(failure), Some(last)) = (&self.failure, self.script.steps.last()) {
            self.differences.add(last.span, "the query failed", &failure.lines());
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<()> {
        let wrong = |why: String| self.script.document.text().error(step.span, why);
        let done = match &step.action {
            Action::Add(additions) => {
                self.check(additions)?;
                self.session.add(additions).await
            }
            Action::AdvanceClock(by_ms) => self.session.advance(*by_ms).await,
            Action::Stop => {
                self.session.stop();
                Ok(())
            }
            Action::Restart(change) | Action::Start(change) => match self.session.change(change) {
                Ok(()) => {
                    self.check(&change.add_offline)?;
                    self.session.start(&change.add_offline).await
                }
                refused => refused,
            },
            Action::Swap(plugin, path) => self.session.swap(plugin, path).await,
            Action::Rollback(plugin) => self.session.rollback(plugin.as_deref()).await,
            Action::DeleteCommit(batch_id) => {
                self.session.delete_commit(*batch_id).await.map_err(wrong)?;
                Ok(())
            }
            Action::FailSink(fault) => {
                self.session.fail_sink(*fault);
                Ok(())
            }
            Action::Expect(expected) => {
                let (ran, failure) = (std::mem::take(&mut self.ran), self.failure.take());
                let zone = self.session.time_zone();
                self.differences.expect(step.span, expected, &ran, failure.as_ref(), zone);
                Ok(())
            }
        };
        self.did(done)
    }

    fn check(&self, additions: &[Addition]) -> Result<()> {
        self.session.check(additions).map_err(|(span, why)| self.script.document.text().error(span, why))
    }

    /// Keeps, and prints if it is wanted, what a step has led to.
    fn did(&mut self, done: Result<(), Failure>) -> Result<()> {
        let ran = self.session.take_ran()?;
        self.failure = done.err().or(self.failure.take());
        if self.print == Some(ScriptPrint::Json) {
            ran.iter().try_for_each(|batch| print_line(&batch.to_json().to_string()))?;
            if let Some(failure) = &self.failure {
                print_line(&failure.to_json().to_string())?;
            }
        }
        self.ran.extend(ran);
        Ok(())
    }
}
