//! How SQL text is read: Spark's dialect, as `sqlparser` has it, with what it lacks.

use datafusion::sql::sqlparser::ast::{Expr, Ident, ObjectName};
use datafusion::sql::sqlparser::dialect::{Dialect, SparkSqlDialect};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::Token;
use std::any::TypeId;

/// Spark's dialect with backslash escapes in strings and with `INTERVAL '10 minutes'` beside `INTERVAL 10 MINUTES`.
/// As in Spark, single and double quotes both make strings and backticks quote names.
#[derive(Debug)]
pub(super) struct SparkDialect;

const BASE: SparkSqlDialect = SparkSqlDialect;

impl Dialect for SparkDialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<SparkSqlDialect>()
    }
    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }
    fn require_interval_qualifier(&self) -> bool {
        false
    }
    fn supports_in_empty_list(&self) -> bool {
        true
    }
    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }
    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        BASE.is_delimited_identifier_start(ch)
    }
    fn is_identifier_start(&self, ch: char) -> bool {
        BASE.is_identifier_start(ch)
    }
    fn is_identifier_part(&self, ch: char) -> bool {
        BASE.is_identifier_part(ch)
    }
    fn supports_filter_during_aggregation(&self) -> bool {
        BASE.supports_filter_during_aggregation()
    }
    fn supports_group_by_expr(&self) -> bool {
        BASE.supports_group_by_expr()
    }
    fn supports_group_by_with_modifier(&self) -> bool {
        BASE.supports_group_by_with_modifier()
    }
    fn supports_lambda_functions(&self) -> bool {
        BASE.supports_lambda_functions()
    }
    fn supports_select_wildcard_except(&self) -> bool {
        BASE.supports_select_wildcard_except()
    }
    fn supports_struct_literal(&self) -> bool {
        BASE.supports_struct_literal()
    }
    fn supports_nested_comments(&self) -> bool {
        BASE.supports_nested_comments()
    }
    fn supports_long_type_as_bigint(&self) -> bool {
        BASE.supports_long_type_as_bigint()
    }
    fn supports_values_as_table_factor(&self) -> bool {
        BASE.supports_values_as_table_factor()
    }
    fn supports_bang_not_operator(&self) -> bool {
        BASE.supports_bang_not_operator()
    }
    fn supports_select_item_multi_column_alias(&self) -> bool {
        BASE.supports_select_item_multi_column_alias()
    }
    fn supports_cte_without_as(&self) -> bool {
        BASE.supports_cte_without_as()
    }
    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        BASE.supports_map_literal_with_angle_brackets()
    }
    /// `exists(array, x -> …)` is a function; before a subquery it is the keyword.
    fn parse_prefix(&self, parser: &mut Parser<'_>) -> Option<Result<Expr, ParserError>> {
        let [first, second, third] = parser.peek_tokens::<3>();
        let is =
            |token: &Token, keyword: Keyword| matches!(token, Token::Word(word) if word.keyword == keyword);
        let subquery = is(&third, Keyword::SELECT) || is(&third, Keyword::WITH);
        if !is(&first, Keyword::EXISTS) || second != Token::LParen || subquery {
            return None;
        }
        parser.next_token();
        Some(parser.parse_function(ObjectName::from(Ident::new("exists"))))
    }
    fn parse_infix(
        &self,
        parser: &mut Parser<'_>,
        expr: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        BASE.parse_infix(parser, expr, precedence)
    }
}
