//! Numbers of sequences: parameters that the caller does not see.
//!
//! A call takes its numbers before it runs, one for each place where the body asks for one. So the body is rewritten
//! before it is lowered: each place becomes a parameter. To the analysis a number is an argument. It is known before
//! the first operation, and stays the same when an attempt is repeated or repaired, or runs in pieces.

use proc_macro2::{Ident, Span};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Error, Expr, ExprMethodCall, FieldValue, FnArg, ItemFn, LitStr, Pat, Path, Result, Stmt, Type, parse_quote,
    parse_quote_spanned,
};

/// What numbers a call takes.
pub(crate) enum Number {
    /// The next of the sequence of this name.
    OfSequence(LitStr),
    /// The next of the identity column of this table.
    OfTable(Path),
}

/// The function with a parameter for each number, behind its own, and the numbers.
pub(super) fn as_parameters(function: &ItemFn) -> Result<(ItemFn, Vec<Number>)> {
    let mut function = function.clone();
    let Some(FnArg::Typed(first)) = function.sig.inputs.first() else { return Ok((function, Vec::new())) };
    let Pat::Ident(tx) = &*first.pat else { return Ok((function, Vec::new())) };
    let tx = tx.ident.clone();
    let mut rewriting = Rewriting { tx, loops: 0, numbers: Vec::new(), mistakes: None };
    rewriting.visit_block_mut(&mut function.block);
    let Rewriting { numbers, mistakes, .. } = rewriting;
    if let Some(error) = mistakes {
        return Err(error);
    }
    for (at, number) in numbers.iter().enumerate() {
        let (ident, ty): (Ident, Type) = match number {
            Number::OfSequence(name) => (ident(at, name.span()), parse_quote!(::core::primitive::i64)),
            Number::OfTable(table) => {
                let at = ident(at, table.span());
                (at, parse_quote!(<#table as ::seriatim::catalog::IdentityTable>::Identity))
            }
        };
        function.sig.inputs.push(parse_quote!(#ident: #ty));
    }
    Ok((function, numbers))
}

/// The name of the parameter that is a number.
fn ident(at: usize, span: Span) -> Ident {
    Ident::new(&format!("__number_{at}"), span)
}

struct Rewriting {
    tx: Ident,
    /// Loops around.
    loops: usize,
    numbers: Vec<Number>,
    mistakes: Option<Error>,
}

impl Rewriting {
    /// The place becomes a parameter.
    fn take(&mut self, call: &ExprMethodCall, number: Number) -> Result<Ident> {
        if self.loops > 0 {
            let message = "a call takes its numbers before it runs, one for each place: take this one outside of the \
                           loop, or give the rows keys by position";
            return Err(Error::new(call.method.span(), message));
        }
        self.numbers.push(number);
        Ok(ident(self.numbers.len() - 1, call.method.span()))
    }

    /// What stands instead of an operation that takes a number.
    fn replaced(&mut self, call: &ExprMethodCall) -> Result<Option<Expr>> {
        if !matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident(&self.tx)) {
            return Ok(None);
        }
        let wrong = |wanted: &str| Err(Error::new(call.method.span(), format!("write {wanted}")));
        let arguments: Vec<&Expr> = call.args.iter().collect();
        match (call.method.to_string().as_str(), &arguments[..]) {
            ("next", [Expr::Lit(literal)]) => {
                let syn::Lit::Str(name) = &literal.lit else { return wrong("`next(\"sequence\")`") };
                let number = self.take(call, Number::OfSequence(name.clone()))?;
                Ok(Some(parse_quote!(#number)))
            }
            ("next", _) => wrong("`next(\"sequence\")`, with the name of the sequence as a literal"),
            ("insert_new", _) => {
                let message = "bind the number with `let` first, then use it";
                Err(Error::new(call.method.span(), message))
            }
            _ => Ok(None),
        }
    }
}

impl Rewriting {
    /// The insertion of a new row, and its number.
    fn new_row(&mut self, expression: &Expr) -> Result<Option<(Expr, Ident)>> {
        let Expr::Try(tried) = expression else { return Ok(None) };
        let Expr::MethodCall(call) = &*tried.expr else { return Ok(None) };
        let is_of_tx = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident(&self.tx));
        if !is_of_tx || call.method != "insert_new" {
            return Ok(None);
        }
        let arguments: Vec<&Expr> = call.args.iter().collect();
        let wanted = "write `insert_new(|id| Table { id, column: value, .. })`";
        let wrong = || Error::new(call.method.span(), wanted);
        let [Expr::Closure(closure)] = &arguments[..] else { return Err(wrong()) };
        let (Some(Pat::Ident(id)), 1, Expr::Struct(row)) =
            (closure.inputs.first(), closure.inputs.len(), &*closure.body)
        else {
            return Err(wrong());
        };
        let number = self.take(call, Number::OfTable(row.path.clone()))?;
        let mut row = row.clone();
        Renaming { from: &id.ident, to: &number }.visit_expr_struct_mut(&mut row);
        let (tx, at) = (&self.tx, call.method.span());
        Ok(Some((parse_quote_spanned!(at=> #tx.insert_overriding(#row)?), number)))
    }

    fn mistake(&mut self, error: Error) {
        match &mut self.mistakes {
            Some(first) => first.combine(error),
            None => self.mistakes = Some(error),
        }
    }
}

/// A variable gets another name.
struct Renaming<'r> {
    from: &'r Ident,
    to: &'r Ident,
}

impl VisitMut for Renaming<'_> {
    fn visit_field_value_mut(&mut self, field: &mut FieldValue) {
        field.colon_token.get_or_insert_default();
        self.visit_expr_mut(&mut field.expr);
    }

    fn visit_expr_path_mut(&mut self, path: &mut syn::ExprPath) {
        if path.path.is_ident(self.from) {
            path.path = Path::from(self.to.clone());
        }
    }
}

impl VisitMut for Rewriting {
    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        for mut statement in std::mem::take(&mut block.stmts) {
            let value = match &mut statement {
                Stmt::Local(local) => {
                    local.init.as_mut().filter(|init| init.diverge.is_none()).map(|init| &mut *init.expr)
                }
                Stmt::Expr(value, _) => Some(value),
                _ => None,
            };
            let inserted = value.map(|value| self.new_row(value).map(|found| found.map(|found| (found, value))));
            match inserted.transpose() {
                Ok(Some(Some(((mut insert, number), value)))) => {
                    self.visit_expr_mut(&mut insert);
                    let at = value.span();
                    *value = parse_quote_spanned!(at=> #number);
                    block.stmts.push(Stmt::Expr(insert, Some(Default::default())));
                    if matches!(&statement, Stmt::Expr(_, Some(_))) {
                        continue;
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    self.mistake(error);
                    continue;
                }
            }
            visit_mut::visit_stmt_mut(self, &mut statement);
            block.stmts.push(statement);
        }
    }

    fn visit_expr_mut(&mut self, expression: &mut Expr) {
        if let Expr::Try(tried) = expression
            && let Expr::MethodCall(call) = &*tried.expr
        {
            match self.replaced(&call.clone()) {
                Ok(None) => {}
                Ok(Some(replaced)) => *expression = replaced,
                Err(error) => return self.mistake(error),
            }
        }
        visit_mut::visit_expr_mut(self, expression);
    }

    fn visit_expr_for_loop_mut(&mut self, looping: &mut syn::ExprForLoop) {
        self.visit_expr_mut(&mut looping.expr);
        self.loops += 1;
        self.visit_block_mut(&mut looping.body);
        self.loops -= 1;
    }
}
