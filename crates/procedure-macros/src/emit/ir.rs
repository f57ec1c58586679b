//! The function that builds the intermediate representation.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use super::{called, library, own};
use crate::tree::{
    Block, Expression, ExpressionKind, KeyRange, Literal, Operation, OperationKind, Operator, Pattern, PatternKind,
    Place, Procedure, Selector, Step, StepKind, Take, VariableId,
};

/// The body of `Declared::declaration`.
pub(super) fn declaration(procedure: &Procedure, latest: bool) -> TokenStream {
    let library = library();
    let (file, at, make) = (own("file"), own("at"), own("make"));
    let name = crate::name_of(&procedure.name);
    let parameters = procedure.parameters.len();
    let variables = procedure.variables.iter().map(|variable| {
        let name = if variable.made { String::new() } else { crate::name_of(&variable.ident) };
        let mutable = variable.mutable || variable.late;
        let span = span(variable.ident.span());
        quote!(#library::ir::Variable { name: #name.into(), mutable: #mutable, span: #span })
    });
    let tables = procedure.tables.iter().map(|table| {
        let span = span(syn::spanned::Spanned::span(table));
        quote!(#library::ir::TableUse { table: <#table as ::seriatim::catalog::Table>::NAME.into(), span: #span })
    });
    let body = Emitter { procedure }.block(&procedure.body);
    let (steps, operations, span) = (procedure.steps, procedure.operations, span(procedure.name.span()));
    quote! {
        let #file: ::std::sync::Arc<str> = ::core::file!().into();
        let #at = |line: u32, column: u32| #library::ir::Span { file: ::std::sync::Arc::clone(&#file), line, column };
        let #make = |span: #library::ir::Span, kind: #library::ir::ExpressionKind| #library::ir::Expression {
            span,
            kind: ::std::boxed::Box::new(kind),
        };
        let _ = &#make;
        #library::ir::Procedure {
            name: #name.into(),
            span: #span,
            latest: #latest,
            parameters: #parameters,
            variables: ::std::vec![#(#variables),*],
            tables: ::std::vec![#(#tables),*],
            body: #body,
            steps: #steps,
            operations: #operations,
        }
    }
}

/// A place in the source.
fn span(span: Span) -> TokenStream {
    let at = own("at");
    // Outside of a compiler (unit tests of this crate) there are no places.
    let (line, column) = match proc_macro::is_available() {
        true => {
            let start = span.unwrap().start();
            (start.line() as u32, start.column() as u32)
        }
        false => (1, 1),
    };
    quote!(#at(#line, #column))
}

/// A literal or constant as a datum; nothing for other expressions.
pub(crate) fn datum(expression: &Expression) -> Option<TokenStream> {
    let library = library();
    Some(match &*expression.kind {
        ExpressionKind::Literal { datum, .. } => match datum {
            Literal::Bool(value) => quote!(#library::Datum::Bool(#value)),
            Literal::Integer { negative, digits, suffix } => {
                let number: syn::LitInt = syn::LitInt::new(&format!("{digits}i128"), expression.span);
                let number = if *negative { quote!(-#number) } else { quote!(#number) };
                let ty = match suffix.as_str() {
                    "" => quote!(::core::option::Option::None),
                    suffix => {
                        let ty = integer_type(suffix);
                        quote!(::core::option::Option::Some(#library::IntegerType::#ty))
                    }
                };
                quote!(#library::Datum::Integer(#number, #ty))
            }
            Literal::Float { negative, digits } => {
                let number = syn::LitFloat::new(&format!("{digits}f64"), expression.span);
                let number = if *negative { quote!(-#number) } else { quote!(#number) };
                quote!(#library::Datum::Float(#number))
            }
            Literal::Text(text) => quote!(#library::Datum::Text(#text.into())),
        },
        ExpressionKind::Constant(path) => quote_spanned!(expression.span=> #library::Data::to_datum(&#path)),
        ExpressionKind::Reference(inner) | ExpressionKind::Dereference(inner) => return datum(inner),
        _ => return None,
    })
}

fn integer_type(suffix: &str) -> syn::Ident {
    let mut letters = suffix.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    syn::Ident::new(&first.into_iter().chain(letters).collect::<String>(), Span::call_site())
}

struct Emitter<'p> {
    procedure: &'p Procedure,
}

impl Emitter<'_> {
    fn block(&self, block: &Block) -> TokenStream {
        let library = library();
        let mut steps = Vec::new();
        self.steps(block, &mut steps);
        quote!(#library::ir::Block(::std::vec![#(#steps),*]))
    }

    fn steps(&self, block: &Block, steps: &mut Vec<TokenStream>) {
        for step in &block.0 {
            match &step.kind {
                StepKind::Scope(inner) => self.steps(inner, steps),
                _ => steps.push(self.step(step)),
            }
        }
    }

    fn step(&self, step: &Step) -> TokenStream {
        let library = library();
        let kinds = quote!(#library::ir::StepKind);
        let kind = match &step.kind {
            StepKind::Declare(variable, _) => {
                let variable = self.variable(*variable);
                quote!(#kinds::Declare(#variable))
            }
            StepKind::Let { pattern, ty, value } => {
                let (pattern, value) = (self.pattern(pattern), self.typed(value, ty.as_ref()));
                quote!(#kinds::Let { pattern: #pattern, value: #value })
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                let (pattern, value, otherwise) =
                    (self.pattern(pattern), self.expression(value), self.block(otherwise));
                quote!(#kinds::LetElse { pattern: #pattern, value: #value, otherwise: #otherwise })
            }
            StepKind::Assign { place, operator, value } => {
                let (place, value) = (self.place(place), self.expression(value));
                let operator = self.option(operator.map(|operator| self.operator(operator)));
                quote!(#kinds::Assign { place: #place, operator: #operator, value: #value })
            }
            StepKind::Change { place, method, arguments } => {
                let receiver = self.place_value(place, step.span);
                let arguments = arguments.iter().map(|argument| self.expression(argument));
                let call = self.method(&crate::name_of(method), std::iter::once(receiver).chain(arguments), step.span);
                let place = self.place(place);
                let none = quote!(::core::option::Option::None);
                quote!(#kinds::Assign { place: #place, operator: #none, value: #call })
            }
            StepKind::Operation { operation, bind } => {
                let operation = self.operation(operation);
                let bind = self.option(bind.as_ref().map(|(pattern, _)| self.pattern(pattern)));
                quote!(#kinds::Operation { operation: #operation, bind: #bind })
            }
            StepKind::If { condition, then, otherwise } => {
                let (condition, then, otherwise) =
                    (self.expression(condition), self.block(then), self.block(otherwise));
                quote!(#kinds::If { condition: #condition, then: #then, otherwise: #otherwise })
            }
            StepKind::Match { value, arms } => {
                let value = self.expression(value);
                let arms = arms.iter().map(|arm| {
                    let (pattern, body) = (self.pattern(&arm.pattern), self.block(&arm.body));
                    let guard = self.option(arm.guard.as_ref().map(|guard| self.expression(guard)));
                    quote!(#library::ir::Arm { pattern: #pattern, guard: #guard, body: #body })
                });
                quote!(#kinds::Match { value: #value, arms: ::std::vec![#(#arms),*] })
            }
            StepKind::For { pattern, over, body } => {
                let (pattern, over, body) = (self.pattern(pattern), self.expression(over), self.block(body));
                quote!(#kinds::For { pattern: #pattern, over: #over, body: #body })
            }
            StepKind::ForEach { row, operation, body } => {
                let (row, operation, body) = (self.variable(*row), self.operation(operation), self.block(body));
                quote!(#kinds::ForEach { row: #row, operation: #operation, body: #body })
            }
            // Its steps are emitted in its place.
            StepKind::Scope(_) => TokenStream::new(),
            StepKind::Break => quote!(#kinds::Break),
            StepKind::Continue => quote!(#kinds::Continue),
            StepKind::Return(value) => {
                let value = self.expression(value);
                quote!(#kinds::Return(#value))
            }
            StepKind::Abort(value) => {
                let value = self.expression(value);
                quote!(#kinds::Abort(#value))
            }
            StepKind::Yield(value) => {
                let value = self.expression(value);
                quote!(#kinds::Yield(#value))
            }
        };
        let (id, span) = (step.id as u16, span(step.span));
        quote!(#library::ir::Step { id: #library::ir::StepId(#id), span: #span, kind: #kind })
    }

    fn operation(&self, operation: &Operation) -> TokenStream {
        let library = library();
        let kinds = quote!(#library::ir::OperationKind);
        let kind = match &operation.kind {
            OperationKind::Get { key, required } => {
                let key = self.key(key);
                quote!(#kinds::Get { key: #key, required: #required })
            }
            OperationKind::Update { key, required, row, body } => {
                let (key, row, body) = (self.key(key), self.variable(*row), self.block(body));
                quote!(#kinds::Update { key: #key, required: #required, row: #row, body: #body })
            }
            OperationKind::Insert { columns } => {
                let columns = columns.iter().map(|(column, value)| {
                    let (column, value) = (crate::name_of(column), self.expression(value));
                    quote!((#column.into(), #value))
                });
                quote!(#kinds::Insert { columns: ::std::vec![#(#columns),*] })
            }
            OperationKind::Delete { key, required } => {
                let key = self.key(key);
                quote!(#kinds::Delete { key: #key, required: #required })
            }
            OperationKind::Scan { range, reverse, limit, take } => {
                let ranges = quote!(#library::ir::KeyRange);
                let range = match range {
                    KeyRange::Prefix(prefix) => {
                        let prefix = self.key(prefix);
                        quote!(#ranges::Prefix(#prefix))
                    }
                    KeyRange::Between { low, high, inclusive } => {
                        let low = self.option(low.as_ref().map(|key| self.key(key)));
                        let high = self.option(high.as_ref().map(|key| self.key(key)));
                        quote!(#ranges::Between { low: #low, high: #high, inclusive: #inclusive })
                    }
                };
                let limit = self.option(limit.as_ref().map(|limit| self.expression(limit)));
                let take = match take {
                    Take::Each => quote!(Each),
                    Take::First => quote!(First),
                    Take::All => quote!(All),
                    Take::Count => quote!(Count),
                };
                let take = quote!(#library::ir::Take::#take);
                quote!(#kinds::Scan { range: #range, reverse: #reverse, limit: #limit, take: #take })
            }
        };
        let (id, span, table) = (operation.id as u16, span(operation.span), operation.table);
        let index = self.option(operation.index.map(|index| {
            let index = &self.procedure.indexes[index];
            let (row, constant) = (&self.procedure.tables[index.table], &index.constant);
            quote!({
                let definition = <#row as ::seriatim::catalog::Table>::definition();
                (&*definition.indexes[#constant.id().index()].name).into()
            })
        }));
        quote! {
            ::std::boxed::Box::new(#library::ir::Operation {
                id: #library::ir::OperationId(#id),
                span: #span,
                table: #table,
                index: #index,
                kind: #kind,
            })
        }
    }

    /// The columns of a key.
    fn key(&self, key: &Expression) -> TokenStream {
        let columns: Vec<_> = match &*key.kind {
            ExpressionKind::Tuple(columns) => columns.iter().map(|column| self.expression(column)).collect(),
            ExpressionKind::Variable(variable, _) if self.procedure.variables[variable.0].parts.is_some() => {
                let (library, parts) = (library(), self.procedure.variables[variable.0].parts.unwrap_or(0));
                let part = |at: usize| {
                    let (name, whole) = (at.to_string(), self.expression(key));
                    self.make(key.span, quote!(#library::ir::ExpressionKind::Field(#whole, #name.into())))
                };
                (0..parts).map(part).collect()
            }
            _ => vec![self.expression(key)],
        };
        quote!(::std::vec![#(#columns),*])
    }

    fn option(&self, value: Option<TokenStream>) -> TokenStream {
        match value {
            Some(value) => quote!(::core::option::Option::Some(#value)),
            None => quote!(::core::option::Option::None),
        }
    }

    fn variable(&self, variable: VariableId) -> TokenStream {
        let (library, at) = (library(), variable.0 as u16);
        quote!(#library::ir::VariableId(#at))
    }

    fn place(&self, place: &Place) -> TokenStream {
        let (library, variable) = (library(), self.variable(place.variable));
        let path = place.path.iter().map(|selector| match selector {
            Selector::Field(member) => {
                let name = crate::member_name(member);
                quote!(#library::ir::Selector::Field(#name.into()))
            }
            Selector::Column(column) => {
                let name = crate::name_of(column);
                quote!(#library::ir::Selector::Field(#name.into()))
            }
            Selector::Index(at) => {
                let at = self.expression(at);
                quote!(#library::ir::Selector::Index(#at))
            }
        });
        quote!(#library::ir::Place { variable: #variable, path: ::std::vec![#(#path),*] })
    }

    /// What a place holds, as an expression.
    fn place_value(&self, place: &Place, at: Span) -> TokenStream {
        let library = library();
        let kinds = quote!(#library::ir::ExpressionKind);
        let variable = self.variable(place.variable);
        let start = self.make(at, quote!(#kinds::Variable(#variable)));
        place.path.iter().fold(start, |base, selector| match selector {
            Selector::Field(member) => {
                let name = crate::member_name(member);
                self.make(at, quote!(#kinds::Field(#base, #name.into())))
            }
            Selector::Column(column) => {
                let name = crate::name_of(column);
                self.make(at, quote!(#kinds::Field(#base, #name.into())))
            }
            Selector::Index(index) => {
                let index = self.expression(index);
                self.make(at, quote!(#kinds::Element(#base, #index)))
            }
        })
    }

    fn pattern(&self, pattern: &Pattern) -> TokenStream {
        let library = library();
        let kinds = quote!(#library::ir::Pattern);
        match &pattern.kind {
            PatternKind::Any => quote!(#kinds::Any),
            PatternKind::Bind(variable) => {
                let variable = self.variable(*variable);
                quote!(#kinds::Bind(#variable))
            }
            PatternKind::Literal(datum) => quote!(#kinds::Literal(#datum)),
            PatternKind::Range { low, high, inclusive } => {
                quote!(#kinds::Range { low: #low, high: #high, inclusive: #inclusive })
            }
            PatternKind::None => quote!(#kinds::None),
            PatternKind::Some(inner) => {
                let inner = self.pattern(inner);
                quote!(#kinds::Some(::std::boxed::Box::new(#inner)))
            }
            PatternKind::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.pattern(part));
                quote!(#kinds::Tuple(::std::vec![#(#parts),*]))
            }
            PatternKind::Record { name, fields } => {
                let fields = fields.iter().map(|(field, pattern)| {
                    let pattern = self.pattern(pattern);
                    quote!((#field.into(), #pattern))
                });
                quote!(#kinds::Record { name: #name.into(), fields: ::std::vec![#(#fields),*] })
            }
            PatternKind::Either(alternatives) => {
                let alternatives = alternatives.iter().map(|alternative| self.pattern(alternative));
                quote!(#kinds::Either(::std::vec![#(#alternatives),*]))
            }
        }
    }

    /// A value that is bound with a type: a literal takes it.
    fn typed(&self, value: &Expression, ty: Option<&syn::Type>) -> TokenStream {
        let suffix = ty.map(crate::text).filter(|name| crate::lists::INTEGERS.contains(&name.as_str()));
        match (&*value.kind, suffix) {
            (
                ExpressionKind::Literal { tokens, datum: Literal::Integer { negative, digits, suffix: old } },
                Some(suffix),
            ) if old.is_empty() => {
                let datum = Literal::Integer { negative: *negative, digits: digits.clone(), suffix };
                let kind = ExpressionKind::Literal { tokens: tokens.clone(), datum };
                self.expression(&Expression::new(value.span, kind))
            }
            _ => self.expression(value),
        }
    }

    fn operator(&self, operator: Operator) -> TokenStream {
        let library = library();
        let name = match operator {
            Operator::Add => quote!(Add),
            Operator::Subtract => quote!(Subtract),
            Operator::Multiply => quote!(Multiply),
            Operator::Divide => quote!(Divide),
            Operator::Remainder => quote!(Remainder),
            Operator::Equal => quote!(Equal),
            Operator::NotEqual => quote!(NotEqual),
            Operator::Less => quote!(Less),
            Operator::LessOrEqual => quote!(LessOrEqual),
            Operator::Greater => quote!(Greater),
            Operator::GreaterOrEqual => quote!(GreaterOrEqual),
            Operator::And => quote!(And),
            Operator::Or => quote!(Or),
        };
        quote!(#library::ir::BinaryOperator::#name)
    }

    fn make(&self, at: Span, kind: TokenStream) -> TokenStream {
        let (make, span) = (own("make"), span(at));
        quote!(#make(#span, #kind))
    }

    fn method(&self, name: &str, arguments: impl Iterator<Item = TokenStream>, at: Span) -> TokenStream {
        let library = library();
        let kind = quote!(#library::ir::ExpressionKind::Call(
            #library::ir::Function::Method(#name.into()),
            ::std::vec![#(#arguments),*],
        ));
        self.make(at, kind)
    }

    fn expressions<'e>(&'e self, expressions: &'e [Expression]) -> impl Iterator<Item = TokenStream> + 'e {
        expressions.iter().map(|expression| self.expression(expression))
    }

    fn expression(&self, expression: &Expression) -> TokenStream {
        let library = library();
        let kinds = quote!(#library::ir::ExpressionKind);
        let at = expression.span;
        if let ExpressionKind::Reference(inner) | ExpressionKind::Dereference(inner) = &*expression.kind {
            return self.expression(inner);
        }
        if let Some(datum) = datum(expression) {
            return self.make(at, quote!(#kinds::Literal(#datum)));
        }
        let kind = match &*expression.kind {
            ExpressionKind::Variable(variable, _) => {
                let variable = self.variable(*variable);
                quote!(#kinds::Variable(#variable))
            }
            ExpressionKind::Field(base, member) => {
                let (base, name) = (self.expression(base), crate::member_name(member));
                quote!(#kinds::Field(#base, #name.into()))
            }
            ExpressionKind::Column(row, column) => {
                let (row, name) = (self.expression(row), crate::name_of(column));
                quote!(#kinds::Field(#row, #name.into()))
            }
            ExpressionKind::Element(list, index) => {
                let (list, index) = (self.expression(list), self.expression(index));
                quote!(#kinds::Element(#list, #index))
            }
            ExpressionKind::Not(inner) => {
                let inner = self.expression(inner);
                quote!(#kinds::Unary(#library::ir::UnaryOperator::Not, #inner))
            }
            ExpressionKind::Negate(inner) => {
                let inner = self.expression(inner);
                quote!(#kinds::Unary(#library::ir::UnaryOperator::Negate, #inner))
            }
            ExpressionKind::Binary(operator, left, right) => {
                let (operator, left, right) = (self.operator(*operator), self.expression(left), self.expression(right));
                quote!(#kinds::Binary(#operator, #left, #right))
            }
            ExpressionKind::Pure(path, arguments) => {
                let arguments = self.expressions(arguments);
                let function = called(path, |called| quote!(#library::ir::Function::pure::<#called>()));
                quote!(#kinds::Call(#function, ::std::vec![#(#arguments),*]))
            }
            ExpressionKind::Method { receiver, method, arguments } => {
                let all = std::iter::once(self.expression(receiver)).chain(self.expressions(arguments));
                return self.method(&crate::name_of(method), all, at);
            }
            ExpressionKind::Associated { path, arguments } => {
                let (function, arguments) = (associated(path), self.expressions(arguments));
                quote!(#kinds::Call(#function, ::std::vec![#(#arguments),*]))
            }
            ExpressionKind::Tuple(parts) => {
                let parts = self.expressions(parts);
                quote!(#kinds::Tuple(::std::vec![#(#parts),*]))
            }
            ExpressionKind::List { elements, .. } => {
                let elements = self.expressions(elements);
                quote!(#kinds::List(::std::vec![#(#elements),*]))
            }
            ExpressionKind::Repeat { element, count, .. } => {
                let element = self.expression(element);
                quote!(#kinds::Repeat(#element, #count))
            }
            ExpressionKind::Record { path, fields, .. } => {
                let name = path.segments.last().map(|last| crate::name_of(&last.ident)).unwrap_or_default();
                let fields = fields.iter().map(|(member, value)| {
                    let (member, value) = (crate::member_name(member), self.expression(value));
                    quote!((#member.into(), #value))
                });
                quote!(#kinds::Record(#name.into(), ::std::vec![#(#fields),*]))
            }
            ExpressionKind::None => quote!(#kinds::None),
            ExpressionKind::Some(inner) => {
                let inner = self.expression(inner);
                quote!(#kinds::Some(#inner))
            }
            ExpressionKind::If(condition, then, otherwise) => {
                let (condition, then, otherwise) =
                    (self.expression(condition), self.expression(then), self.expression(otherwise));
                quote!(#kinds::If(#condition, #then, #otherwise))
            }
            ExpressionKind::Match(value, arms) => {
                let value = self.expression(value);
                let arms = arms.iter().map(|(pattern, guard, value)| {
                    let (pattern, value) = (self.pattern(pattern), self.expression(value));
                    let guard = self.option(guard.as_ref().map(|guard| self.expression(guard)));
                    quote!((#pattern, #guard, #value))
                });
                quote!(#kinds::Match(#value, ::std::vec![#(#arms),*]))
            }
            ExpressionKind::Block(bindings, value) => {
                let bindings = bindings.iter().map(|(pattern, ty, value)| {
                    let (pattern, value) = (self.pattern(pattern), self.typed(value, ty.as_ref()));
                    quote!((#pattern, #value))
                });
                let value = self.expression(value);
                quote!(#kinds::Block(::std::vec![#(#bindings),*], #value))
            }
            ExpressionKind::Range { low, high, inclusive } => {
                let (low, high) = (self.expression(low), self.expression(high));
                quote!(#kinds::Range { low: #low, high: #high, inclusive: #inclusive })
            }
            ExpressionKind::Literal { .. }
            | ExpressionKind::Constant(_)
            | ExpressionKind::Reference(_)
            | ExpressionKind::Dereference(_) => TokenStream::new(),
        };
        self.make(at, kind)
    }
}

/// A conversion or constructor: by the type as written, or, where its name stands for another type, through the compiler.
fn associated(path: &syn::Path) -> TokenStream {
    let library = library();
    let mut segments = path.segments.iter().rev();
    let function = segments.next().map(|segment| crate::name_of(&segment.ident)).unwrap_or_default();
    let ty = segments.next();
    let owner = ty.map(|segment| crate::name_of(&segment.ident)).unwrap_or_default();
    let is_plain = ty.is_none_or(|ty| match &ty.arguments {
        syn::PathArguments::AngleBracketed(given) => {
            given.args.iter().all(|argument| matches!(argument, syn::GenericArgument::Const(syn::Expr::Lit(_))))
        }
        _ => true,
    });
    let through_compiler = match function.as_str() {
        "from_units" if owner != "Decimal" || !is_plain => Some(quote!(#path)),
        "truncated" if owner != "Text" || !is_plain => Some(quote!(|text: ::std::string::String| #path(&text))),
        _ => None,
    };
    match through_compiler {
        Some(call) => {
            let name = format!("{owner}::{function}");
            quote!(#library::ir::Function::Pure {
                name: #name.into(),
                total: true,
                evaluate: |arguments| #library::methods::apply(arguments, #call),
            })
        }
        None => {
            let written = ty.map(crate::text).unwrap_or_default().replace(' ', "");
            quote!(#library::ir::Function::Associated(#written.into(), #function.into()))
        }
    }
}
