//! The table that the rows go to: its name, whether it can take them, and the statements that write them.

use super::server::Failure;
use super::types::{column_type, holds};
use arrow::datatypes::Schema;
use pelton_core::suggest::did_you_mean;
use pelton_core::types::type_name;
use pelton_core::{Error, OutputMode, Result};
use std::fmt;
use tokio_postgres::Client;
use tokio_postgres::types::Oid;

/// Where the rows of a micro-batch in update mode wait for their way into the table; each session has one.
const WAITING: &str = "pg_temp.pelton_rows";

/// A name as SQL takes it to the letter.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table by schema and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableName {
    pub(super) schema: String,
    pub(super) table: String,
}

impl TableName {
    /// `schema.table`, taken to the letter; without a schema it is `public`. A name with a dot stands in double quotes.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut parts = vec![String::new()];
        let (mut in_quotes, mut chars) = (false, text.trim().chars().peekable());
        while let Some(c) = chars.next() {
            match c {
                '"' if in_quotes && chars.peek() == Some(&'"') => {
                    chars.next();
                    parts.last_mut().into_iter().for_each(|part| part.push('"'));
                }
                '"' => in_quotes = !in_quotes,
                '.' if !in_quotes => parts.push(String::new()),
                c => parts.last_mut().into_iter().for_each(|part| part.push(c)),
            }
        }
        let is_name = |part: &String| !part.is_empty() && part.len() < 64 && !part.contains('\0');
        match &parts[..] {
            [table] if is_name(table) && !in_quotes => {
                Ok(Self { schema: "public".into(), table: table.clone() })
            }
            [schema, table] if is_name(schema) && is_name(table) && !in_quotes => {
                Ok(Self { schema: schema.clone(), table: table.clone() })
            }
            _ => Err(Error::invalid(format!("'{text}' does not name a table"))
                .hint("table: name, or table: schema.name; names have up to 63 bytes")),
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", quoted(&self.schema), quoted(&self.table))
    }
}

/// What goes into the table, and how.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) name: TableName,
    pub(super) schema: Schema,
    pub(super) mode: OutputMode,
    /// By position in the schema.
    pub(super) key: Vec<usize>,
}

/// The table as the server knows it, found fit for a layout.
#[derive(Debug, Clone)]
pub(super) struct Target {
    layout: Layout,
    /// The columns' types as declared, in the layout's order.
    types: Vec<String>,
    /// The key's unique index takes two nulls for one value.
    pub(super) nulls_are_equal: bool,
}

/// A column as the server knows it.
struct Known {
    name: String,
    declared: String,
    /// What a domain stands on; otherwise as declared.
    base: String,
    is_enum: bool,
    is_generated: bool,
    /// A row without this column cannot be.
    is_needed: bool,
}

const COLUMNS: &str = "SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), \
    pg_catalog.format_type(b.oid, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END), \
    b.typtype = 'e', a.attgenerated <> '' OR a.attidentity = 'a', \
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' \
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid \
    JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Indexes that can arbitrate an upsert, with the names of their columns.
fn unique_indexes(server_version: i32) -> String {
    let nulls_are_equal = if server_version >= 150_000 { "i.indnullsnotdistinct" } else { "false" };
    format!(
        "SELECT {nulls_are_equal}, ARRAY(SELECT a.attname::text FROM unnest(i.indkey::int2[]) \
         WITH ORDINALITY k (attnum, nth) JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid \
         AND a.attnum = k.attnum WHERE k.nth <= i.indnkeyatts) FROM pg_catalog.pg_index i WHERE i.indrelid = $1 \
         AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL"
    )
}

impl Target {
    /// Finds the table and checks that it takes the rows; makes one if there is none and `create` says so. Part of a
    /// transaction.
    pub(super) async fn open(client: &Client, layout: &Layout, create: bool) -> Result<Self, Failure> {
        let version: String = client.query_one("SHOW server_version_num", &[]).await?.get(0);
        let version = version.parse().unwrap_or(0);
        let oid = match find(client, &layout.name).await? {
            Some(oid) => oid,
            None if create => {
                client.batch_execute(&layout.create_statement(version)).await?;
                find(client, &layout.name).await?.ok_or_else(|| gone(&layout.name))?
            }
            None => return Err(gone(&layout.name).into()),
        };
        let known = client.query(COLUMNS, &[&oid]).await?;
        let known: Vec<Known> = known
            .iter()
            .map(|row| Known {
                name: row.get(0),
                declared: row.get(1),
                base: row.get(2),
                is_enum: row.get(3),
                is_generated: row.get(4),
                is_needed: row.get(5),
            })
            .collect();
        let types = layout.check_columns(&known)?;
        let mut nulls_are_equal = false;
        if layout.mode == OutputMode::Update {
            let indexes = client.query(&unique_indexes(version), &[&oid]).await?;
            let indexes = indexes.iter().map(|row| (row.get(0), row.get(1)));
            nulls_are_equal = layout.check_key(indexes.collect())?;
        }
        Ok(Self { layout: layout.clone(), types, nulls_are_equal })
    }

    /// What a session needs before it can write.
    pub(super) fn session_statement(&self) -> Option<String> {
        let columns = self.types.iter().enumerate().map(|(nth, declared)| format!(", c{nth} {declared}"));
        let columns = columns.collect::<String>();
        let create = format!("CREATE TEMPORARY TABLE pelton_rows (n bigint{columns}) ON COMMIT DELETE ROWS");
        (self.layout.mode == OutputMode::Update).then_some(create)
    }

    /// What takes the rows from the client.
    pub(super) fn copy_statement(&self) -> String {
        match self.layout.mode {
            OutputMode::Update => format!("COPY {WAITING} FROM STDIN"),
            _ => format!("COPY {} ({}) FROM STDIN", self.layout.name, self.layout.columns()),
        }
    }

    /// What goes before the rows.
    pub(super) fn before_statement(&self) -> Option<String> {
        let delete = format!("DELETE FROM {}", self.layout.name);
        (self.layout.mode == OutputMode::Complete).then_some(delete)
    }

    /// What brings the rows that wait into the table: of those with one key the last.
    pub(super) fn after_statement(&self) -> Option<String> {
        let layout = &self.layout;
        let waiting = |columns: &mut dyn Iterator<Item = usize>| {
            columns.map(|nth| format!("c{nth}")).collect::<Vec<_>>().join(", ")
        };
        let all = waiting(&mut (0..layout.schema.fields().len()));
        let key = waiting(&mut layout.key.iter().copied());
        let set = (0..layout.schema.fields().len()).filter(|nth| !layout.key.contains(nth)).map(|nth| {
            let column = quoted(layout.schema.field(nth).name());
            format!("{column} = EXCLUDED.{column}")
        });
        let set = set.collect::<Vec<_>>().join(", ");
        let conflict = if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {set}") };
        let upsert = format!(
            "INSERT INTO {} ({}) SELECT DISTINCT ON ({key}) {all} FROM {WAITING} ORDER BY {key}, n DESC \
             ON CONFLICT ({}) DO {conflict}",
            layout.name,
            layout.columns(),
            layout.names(&layout.key),
        );
        (layout.mode == OutputMode::Update).then_some(upsert)
    }
}

/// The table's identity, if there is one of that name that rows can be copied to.
async fn find(client: &Client, name: &TableName) -> Result<Option<Oid>, Failure> {
    let query = "SELECT c.oid, c.relkind::text FROM pg_catalog.pg_class c \
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";
    let Some(row) = client.query_opt(query, &[&name.schema, &name.table]).await? else { return Ok(None) };
    let kind: String = row.get(1);
    match kind.as_str() {
        "r" | "p" => Ok(Some(row.get(0))),
        _ => Err(Error::invalid(format!("{name} is not a table"))
            .hint("a sink writes to a table of its own")
            .into()),
    }
}

fn gone(name: &TableName) -> Error {
    Error::invalid(format!("there is no table {name}")).hint("create it, or leave `create_table: false` out")
}

impl Layout {
    /// Whether rows of this schema can be written so, as far as can be said without the server.
    pub(super) fn new(name: TableName, schema: &Schema, mode: OutputMode, key: &[String]) -> Result<Self> {
        if schema.fields().is_empty() {
            return Err(Error::invalid("a table needs a column, and the query gives none"));
        }
        if let Some(field) =
            schema.fields().iter().find(|field| field.name().len() > 63 || field.name().is_empty())
        {
            return Err(Error::invalid(format!(
                "the column '{}' cannot be one of a PostgreSQL table, whose names have 1 to 63 bytes",
                field.name()
            ))
            .hint("give it another name in a select step"));
        }
        match (mode, key) {
            (OutputMode::Update, []) => {
                return Err(Error::invalid("output mode update needs the key of the rows that it replaces")
                    .hint("key: [the columns that the query groups by]"));
            }
            (OutputMode::Append | OutputMode::Complete, [_, ..]) => {
                return Err(Error::invalid(format!(
                    "output mode {mode} replaces no single rows: it needs no `key`"
                ))
                .hint("leave `key` out, or set output_mode: update"));
            }
            _ => {}
        }
        let position = |column: &String| {
            schema.index_of(column).map_err(|_| {
                let names = schema.fields().iter().map(|field| field.name().as_str());
                Error::invalid(format!("key: there is no column '{column}'{}", did_you_mean(column, names)))
            })
        };
        let key = key.iter().map(position).collect::<Result<Vec<_>>>()?;
        Ok(Self { name, schema: schema.clone(), mode, key })
    }

    fn columns(&self) -> String {
        self.names(&(0..self.schema.fields().len()).collect::<Vec<_>>())
    }

    fn names(&self, columns: &[usize]) -> String {
        columns.iter().map(|nth| quoted(self.schema.field(*nth).name())).collect::<Vec<_>>().join(", ")
    }

    fn create_statement(&self, server_version: i32) -> String {
        let column = |field: &arrow::datatypes::FieldRef| {
            let not_null = if field.is_nullable() { "" } else { " NOT NULL" };
            format!("{} {}{not_null}", quoted(field.name()), column_type(field.data_type()))
        };
        let mut parts: Vec<String> = self.schema.fields().iter().map(column).collect();
        let may_be_null = self.key.iter().any(|nth| self.schema.field(*nth).is_nullable());
        if !self.key.is_empty() {
            let constraint = match may_be_null && server_version >= 150_000 {
                true => "UNIQUE NULLS NOT DISTINCT",
                false => "PRIMARY KEY",
            };
            parts.push(format!("{constraint} ({})", self.names(&self.key)));
        }
        format!("CREATE TABLE {} ({})", self.name, parts.join(", "))
    }

    /// Every fault of the columns in one message; otherwise their declared types.
    fn check_columns(&self, known: &[Known]) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut types = Vec::new();
        for field in self.schema.fields() {
            let Some(column) = known.iter().find(|column| column.name == *field.name()) else {
                let near = did_you_mean(field.name(), known.iter().map(|column| column.name.as_str()));
                let wanted = column_type(field.data_type());
                faults.push(format!("it has no column '{}' ({wanted}){near}", field.name()));
                continue;
            };
            if column.is_generated {
                faults.push(format!("its column '{}' is generated and cannot be written", column.name));
            } else if !holds(&column.base, column.is_enum, field.data_type()) {
                faults.push(format!(
                    "its column '{}' is {}, which does not hold every {} ({} would)",
                    column.name,
                    column.declared,
                    type_name(field.data_type()),
                    column_type(field.data_type())
                ));
            }
            types.push(column.declared.clone());
        }
        let ours = |column: &&Known| self.schema.index_of(&column.name).is_ok();
        for column in known.iter().filter(|column| column.is_needed && !ours(column)) {
            faults.push(format!(
                "its column '{}' must not be null, and the query does not give it",
                column.name
            ));
        }
        if faults.is_empty() {
            return Ok(types);
        }
        Err(Error::invalid(format!("the table {} cannot take the rows: {}", self.name, faults.join("; ")))
            .hint("change the table, or the columns in a last select step"))
    }

    /// Whether the index of the key takes nulls for equal.
    fn check_key(&self, indexes: Vec<(bool, Vec<String>)>) -> Result<bool> {
        let names: Vec<&String> = self.key.iter().map(|nth| self.schema.field(*nth).name()).collect();
        let fits = |columns: &Vec<String>| {
            columns.len() == names.len() && names.iter().all(|name| columns.contains(name))
        };
        let fitting: Vec<bool> =
            indexes.iter().filter(|(_, columns)| fits(columns)).map(|(equal, _)| *equal).collect();
        if fitting.is_empty() {
            return Err(Error::invalid(format!(
                "the table {} has no unique constraint on the key ({})",
                self.name,
                self.names(&self.key)
            ))
            .hint(format!("ALTER TABLE {} ADD UNIQUE ({})", self.name, self.names(&self.key))));
        }
        Ok(fitting.contains(&true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_to_the_letter() {
        let shown =
            |text| TableName::parse(text).map_or_else(|e| e.message().to_owned(), |name| name.to_string());
        assert_eq!(shown("delays"), "\"public\".\"delays\"");
        assert_eq!(shown("flights.Delays"), "\"flights\".\"Delays\"");
        assert_eq!(shown("\"my.schema\".\"a \"\"b\"\"\""), "\"my.schema\".\"a \"\"b\"\"\"");
        for wrong in ["", "a.b.c", ".b", "\"a"] {
            assert_eq!(shown(wrong), format!("'{wrong}' does not name a table"));
        }
    }
}
