//! A list of steps: printed before, timed while it runs, summed up after.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step went.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It did its work; a word about it, or nothing.
    Done(String),
    /// It had nothing to work on, and why.
    Skipped(String),
}

impl Outcome {
    /// Done with nothing to add.
    pub(crate) fn done() -> Outcome {
        Outcome::Done(String::new())
    }
}

/// A step of a plan over a shared state `S`.
pub(crate) struct Step<S> {
    /// Its name, unique in the plan.
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) about: &'static str,
    /// Earlier steps without which it makes no sense; one that isn't in the plan is taken as done.
    pub(crate) needs: &'static [&'static str],
    /// Its work.
    pub(crate) work: fn(&mut S) -> Result<Outcome>,
}

#[derive(Debug)]
enum Verdict {
    Done(String),
    Skipped(String),
    Failed(String),
}

struct Row {
    name: &'static str,
    verdict: Verdict,
    took: Duration,
}

/// Runs all steps in order. A failure doesn't stop the others, except those that need it.
/// Gives the names of those that failed.
pub(crate) fn run<S>(steps: &[&Step<S>], state: &mut S) -> Vec<&'static str> {
    let width = steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
    println!("Plan:");
    for (index, step) in steps.iter().enumerate() {
        println!("  {:>2}  {:width$}  {}", index + 1, step.name, step.about);
    }
    let mut rows: Vec<Row> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        println!("\n== {}/{} {}: {}", index + 1, steps.len(), step.name, step.about);
        let row = run_step(step, &rows, state);
        println!("== {}", line(&row, 0));
        rows.push(row);
    }
    println!("\nSummary:");
    for row in &rows {
        println!("  {}", line(row, width));
    }
    let total: Duration = rows.iter().map(|row| row.took).sum();
    let failed: Vec<&'static str> = rows
        .iter()
        .filter(|row| matches!(row.verdict, Verdict::Failed(_)))
        .map(|row| row.name)
        .collect();
    println!(
        "  {} steps, {} failed, {:.0} s",
        rows.len(),
        failed.len(),
        total.as_secs_f64()
    );
    failed
}

fn run_step<S>(step: &Step<S>, rows: &[Row], state: &mut S) -> Row {
    let started = Instant::now();
    let failed = |name: &str| {
        rows.iter()
            .any(|row| row.name == name && matches!(row.verdict, Verdict::Failed(_)))
    };
    let missing = step.needs.iter().find(|need| failed(need));
    let verdict = if let Some(missing) = missing {
        Verdict::Failed(format!("not tried: it needs {missing}"))
    } else {
        match (step.work)(state) {
            Ok(Outcome::Done(word)) => Verdict::Done(word),
            Ok(Outcome::Skipped(why)) => Verdict::Skipped(why),
            Err(error) => {
                eprintln!("{error:#}");
                Verdict::Failed(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
            }
        }
    };
    Row {
        name: step.name,
        verdict,
        took: started.elapsed(),
    }
}

fn line(row: &Row, width: usize) -> String {
    let (mark, word) = match &row.verdict {
        Verdict::Done(word) => ("ok", word),
        Verdict::Skipped(why) => ("skipped", why),
        Verdict::Failed(why) => ("FAILED", why),
    };
    let took = row.took.as_secs_f64();
    format!("{mark:7} {:width$} {took:6.1} s  {word}", row.name)
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    fn step(
        name: &'static str,
        needs: &'static [&'static str],
        work: fn(&mut Vec<&'static str>) -> Result<Outcome>,
    ) -> Step<Vec<&'static str>> {
        Step {
            name,
            about: "",
            needs,
            work,
        }
    }

    #[test]
    fn a_failure_stops_only_what_needs_it_and_fails_the_plan() {
        let steps = [
            step("a", &[], |_| bail!("broken")),
            step("b", &["a"], |ran| {
                ran.push("b");
                Ok(Outcome::done())
            }),
            step("c", &[], |ran| {
                ran.push("c");
                Ok(Outcome::Skipped("nothing here".to_owned()))
            }),
            step("d", &["c"], |ran| {
                ran.push("d");
                Ok(Outcome::done())
            }),
        ];
        let mut ran = Vec::new();
        let steps: Vec<_> = steps.iter().collect();
        assert_eq!(run(&steps, &mut ran), ["a", "b"]);
        assert_eq!(ran, ["c", "d"]);
    }
}
