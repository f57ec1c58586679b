//! The intermediate representation, encoded: what `Declared::declaration` decodes.
//!
//! Invariant: nodes stand in pre-order, their fields in the order in which the decoder lists them
//! (`crates/procedure/src/encoded.rs`, where the format is). Constant data compiles in no time; code that builds the tree took longer
//! to compile than the procedure itself.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};

use super::{called, library};
use crate::tree::{
    Block, Expression, ExpressionKind, KeyRange, Literal, Operation, OperationKind, Pattern, PatternKind, Place,
    Procedure, Selector, Step, StepKind, VariableId,
};

/// The body of `Declared::declaration`.
pub(super) fn declaration(procedure: &Procedure, latest: bool) -> TokenStream {
    let library = library();
    let mut encoder = Encoder { procedure, text: String::new(), constants: Vec::new(), functions: Vec::new() };
    encoder.procedure(latest);
    let Encoder { text, constants, functions, .. } = encoder;
    let tables = &procedure.tables;
    let indexes = procedure.indexes.iter().map(|index| {
        let (row, constant) = (&tables[index.table], &index.constant);
        quote!((<#row as ::seriatim::catalog::Table>::definition, #constant.id()))
    });
    quote! {
        const __ENCODED: #library::ir::Encoded = #library::ir::Encoded {
            text: #text,
            file: ::core::file!(),
            tables: &[#(<#tables as ::seriatim::catalog::Table>::NAME),*],
            indexes: &[#(#indexes),*],
            constants: &[#(#constants),*],
            functions: &[#(#functions),*],
        };
        __ENCODED.decode()
    }
}

/// Whether it is a literal or a constant.
pub(crate) fn is_datum(expression: &Expression) -> bool {
    match &*expression.kind {
        ExpressionKind::Literal { .. } | ExpressionKind::Constant(_) => true,
        ExpressionKind::Reference(inner) | ExpressionKind::Dereference(inner) => is_datum(inner),
        _ => false,
    }
}

struct Encoder<'p> {
    procedure: &'p Procedure,
    text: String,
    /// Functions that make the values of constants.
    constants: Vec<TokenStream>,
    functions: Vec<TokenStream>,
}

impl Encoder<'_> {
    /// The name of a variant, a number, or a truth value.
    fn word(&mut self, word: impl Display) {
        self.text.push_str(&format!("{word} "));
    }

    fn name(&mut self, name: &str) {
        self.word(format_args!("{}:{name}", name.len()));
    }

    fn list<T>(&mut self, parts: &[T], mut encode: impl FnMut(&mut Self, &T)) {
        self.word(parts.len());
        parts.iter().for_each(|part| encode(self, part));
    }

    fn option<T>(&mut self, value: Option<&T>, mut encode: impl FnMut(&mut Self, &T)) {
        self.word(value.is_some());
        value.into_iter().for_each(|value| encode(self, value));
    }

    /// A place in the source.
    fn span(&mut self, span: Span) {
        // Outside of a compiler (unit tests of this crate) there are no places.
        let (line, column) = match proc_macro::is_available() {
            true => {
                let start = span.unwrap().start();
                (start.line(), start.column())
            }
            false => (1, 1),
        };
        self.word(line);
        self.word(column);
    }

    fn procedure(&mut self, latest: bool) {
        let procedure = self.procedure;
        self.name(&crate::name_of(&procedure.name));
        self.span(procedure.name.span());
        self.word(latest);
        self.word(procedure.parameters.len());
        self.list(&procedure.variables, |encoder, variable| {
            encoder.name(&if variable.made { String::new() } else { crate::name_of(&variable.ident) });
            encoder.word(variable.mutable || variable.late);
            encoder.span(variable.ident.span());
        });
        self.word(procedure.tables.len());
        for (at, table) in procedure.tables.iter().enumerate() {
            self.word(format_args!("#{at}"));
            self.span(syn::spanned::Spanned::span(table));
        }
        self.block(&procedure.body);
        self.word(procedure.steps);
        self.word(procedure.operations);
    }

    fn block(&mut self, block: &Block) {
        fn flat<'b>(block: &'b Block, steps: &mut Vec<&'b Step>) {
            for step in &block.0 {
                match &step.kind {
                    StepKind::Scope(inner) => flat(inner, steps),
                    _ => steps.push(step),
                }
            }
        }
        let mut steps = Vec::new();
        flat(block, &mut steps);
        self.list(&steps, |encoder, step| encoder.step(step));
    }

    fn step(&mut self, step: &Step) {
        self.word(step.id);
        self.span(step.span);
        match &step.kind {
            StepKind::Declare(variable, _) => {
                self.word("Declare");
                self.variable(*variable);
            }
            StepKind::Let { pattern, ty, value } => {
                self.word("Let");
                self.pattern(pattern);
                self.typed(value, ty.as_ref());
            }
            StepKind::LetElse { pattern, value, otherwise } => {
                self.word("LetElse");
                self.pattern(pattern);
                self.expression(value);
                self.block(otherwise);
            }
            StepKind::Assign { place, operator, value } => {
                self.word("Assign");
                self.place(place);
                self.option(operator.as_ref(), |encoder, operator| encoder.word(format_args!("{operator:?}")));
                self.expression(value);
            }
            StepKind::Change { place, method, arguments } => {
                self.word("Assign");
                self.place(place);
                self.word(false);
                self.method(step.span, method, arguments, |encoder| {
                    encoder.place_value(place.variable, &place.path, step.span);
                });
            }
            StepKind::Operation { operation, bind } => {
                self.word("Operation");
                self.operation(operation);
                self.option(bind.as_ref(), |encoder, (pattern, _)| encoder.pattern(pattern));
            }
            StepKind::If { condition, then, otherwise } => {
                self.word("If");
                self.expression(condition);
                self.block(then);
                self.block(otherwise);
            }
            StepKind::Match { value, arms } => {
                self.word("Match");
                self.expression(value);
                self.list(arms, |encoder, arm| {
                    encoder.pattern(&arm.pattern);
                    encoder.option(arm.guard.as_ref(), Self::expression);
                    encoder.block(&arm.body);
                });
            }
            StepKind::For { pattern, over, body } => {
                self.word("For");
                self.pattern(pattern);
                self.expression(over);
                self.block(body);
            }
            StepKind::ForEach { row, operation, body } => {
                self.word("ForEach");
                self.variable(*row);
                self.operation(operation);
                self.block(body);
            }
            // Its steps are encoded in its place.
            StepKind::Scope(_) => {}
            StepKind::Break => self.word("Break"),
            StepKind::Continue => self.word("Continue"),
            StepKind::Return(value) => {
                self.word("Return");
                self.expression(value);
            }
            StepKind::Abort(value) => {
                self.word("Abort");
                self.expression(value);
            }
            StepKind::Yield(value) => {
                self.word("Yield");
                self.expression(value);
            }
        }
    }

    fn operation(&mut self, operation: &Operation) {
        self.word(operation.id);
        self.span(operation.span);
        self.word(operation.table);
        self.option(operation.index.as_ref(), |encoder, index| encoder.word(format_args!("#{index}")));
        match &operation.kind {
            OperationKind::Get { key, required } => {
                self.word("Get");
                self.key(key);
                self.word(required);
            }
            OperationKind::Update { key, required, row, body } => {
                self.word("Update");
                self.key(key);
                self.word(required);
                self.variable(*row);
                self.block(body);
            }
            OperationKind::Insert { columns } => {
                self.word("Insert");
                self.list(columns, |encoder, (column, value)| {
                    encoder.name(&crate::name_of(column));
                    encoder.expression(value);
                });
            }
            OperationKind::Delete { key, required } => {
                self.word("Delete");
                self.key(key);
                self.word(required);
            }
            OperationKind::Scan { range, reverse, limit, take } => {
                self.word("Scan");
                match range {
                    KeyRange::Prefix(prefix) => {
                        self.word("Prefix");
                        self.key(prefix);
                    }
                    KeyRange::Between { low, high, inclusive } => {
                        self.word("Between");
                        self.option(low.as_ref(), Self::key);
                        self.option(high.as_ref(), Self::key);
                        self.word(inclusive);
                    }
                }
                self.word(reverse);
                self.option(limit.as_ref(), Self::expression);
                self.word(format_args!("{take:?}"));
            }
        }
    }

    /// The columns of a key.
    fn key(&mut self, key: &Expression) {
        match &*key.kind {
            ExpressionKind::Tuple(columns) => self.list(columns, Self::expression),
            ExpressionKind::Variable(variable, _) => match self.procedure.variables[variable.0].parts {
                Some(parts) => {
                    self.word(parts);
                    for part in 0..parts {
                        self.span(key.span);
                        self.word("Field");
                        self.expression(key);
                        self.name(&part.to_string());
                    }
                }
                None => self.list(&[key], |encoder, key| encoder.expression(key)),
            },
            _ => self.list(&[key], |encoder, key| encoder.expression(key)),
        }
    }

    fn variable(&mut self, variable: VariableId) {
        self.word(variable.0);
    }

    fn place(&mut self, place: &Place) {
        self.variable(place.variable);
        self.list(&place.path, |encoder, selector| match selector {
            Selector::Field(member) => {
                encoder.word("Field");
                encoder.name(&crate::member_name(member));
            }
            Selector::Column(column) => {
                encoder.word("Field");
                encoder.name(&crate::name_of(column));
            }
            Selector::Index(at) => {
                encoder.word("Index");
                encoder.expression(at);
            }
        });
    }

    /// What a place holds, as an expression.
    fn place_value(&mut self, variable: VariableId, path: &[Selector], at: Span) {
        self.span(at);
        let Some((last, before)) = path.split_last() else {
            self.word("Variable");
            return self.variable(variable);
        };
        self.word(if matches!(last, Selector::Index(_)) { "Element" } else { "Field" });
        self.place_value(variable, before, at);
        match last {
            Selector::Field(member) => self.name(&crate::member_name(member)),
            Selector::Column(column) => self.name(&crate::name_of(column)),
            Selector::Index(index) => self.expression(index),
        }
    }

    fn pattern(&mut self, pattern: &Pattern) {
        match &pattern.kind {
            PatternKind::Any => self.word("Any"),
            PatternKind::Bind(variable) => {
                self.word("Bind");
                self.variable(*variable);
            }
            PatternKind::Literal(value) => {
                self.word("Literal");
                self.datum(value);
            }
            PatternKind::Range { low, high, inclusive } => {
                self.word("Range");
                self.datum(low);
                self.datum(high);
                self.word(inclusive);
            }
            PatternKind::None => self.word("None"),
            PatternKind::Some(inner) => {
                self.word("Some");
                self.pattern(inner);
            }
            PatternKind::Tuple(parts) => {
                self.word("Tuple");
                self.list(parts, Self::pattern);
            }
            PatternKind::Record { name, fields } => {
                self.word("Record");
                self.name(name);
                self.list(fields, |encoder, (field, pattern)| {
                    encoder.name(field);
                    encoder.pattern(pattern);
                });
            }
            PatternKind::Either(alternatives) => {
                self.word("Either");
                self.list(alternatives, Self::pattern);
            }
        }
    }

    /// A literal or constant.
    fn datum(&mut self, expression: &Expression) {
        match &*expression.kind {
            ExpressionKind::Literal { datum, .. } => match datum {
                Literal::Bool(value) => {
                    self.word("Bool");
                    self.word(value);
                }
                Literal::Integer { negative, digits, suffix } => {
                    self.word("Integer");
                    self.word(format_args!("{}{digits}", if *negative { "-" } else { "" }));
                    self.name(suffix);
                }
                Literal::Float { negative, digits } => {
                    self.word("Float");
                    self.word(format_args!("{}{digits}", if *negative { "-" } else { "" }));
                }
                Literal::Text(text) => {
                    self.word("Text");
                    self.name(text);
                }
            },
            ExpressionKind::Constant(path) => self.constant(path, expression.span),
            ExpressionKind::Reference(inner) | ExpressionKind::Dereference(inner) => self.datum(inner),
            _ => {}
        }
    }

    fn constant(&mut self, constant: &TokenStream, span: Span) {
        let library = library();
        self.word(format_args!("#{}", self.constants.len()));
        self.constants.push(quote_spanned!(span=> || #library::Data::to_datum(&#constant)));
    }

    fn function(&mut self, function: TokenStream) {
        self.word(format_args!("#{}", self.functions.len()));
        self.functions.push(function);
    }

    /// A value that is bound with a type: a literal takes it.
    fn typed(&mut self, value: &Expression, ty: Option<&syn::Type>) {
        let suffix = ty.map(crate::text).filter(|name| crate::lists::INTEGERS.contains(&name.as_str()));
        match (&*value.kind, suffix) {
            (
                ExpressionKind::Literal { tokens, datum: Literal::Integer { negative, digits, suffix: old } },
                Some(suffix),
            ) if old.is_empty() => {
                let datum = Literal::Integer { negative: *negative, digits: digits.clone(), suffix };
                let kind = ExpressionKind::Literal { tokens: tokens.clone(), datum };
                self.expression(&Expression::new(value.span, kind));
            }
            _ => self.expression(value),
        }
    }

    fn method(&mut self, at: Span, method: &syn::Ident, arguments: &[Expression], receiver: impl FnOnce(&mut Self)) {
        self.span(at);
        self.word("Call");
        self.word("Method");
        self.name(&crate::name_of(method));
        self.word(arguments.len() + 1);
        receiver(self);
        arguments.iter().for_each(|argument| self.expression(argument));
    }

    fn expression(&mut self, expression: &Expression) {
        match &*expression.kind {
            ExpressionKind::Reference(inner) | ExpressionKind::Dereference(inner) => return self.expression(inner),
            ExpressionKind::Method { receiver, method, arguments } => {
                return self.method(expression.span, method, arguments, |encoder| encoder.expression(receiver));
            }
            _ => self.span(expression.span),
        }
        match &*expression.kind {
            ExpressionKind::Literal { .. } | ExpressionKind::Constant(_) => {
                self.word("Literal");
                self.datum(expression);
            }
            ExpressionKind::Variable(variable, _) => {
                self.word("Variable");
                self.variable(*variable);
            }
            ExpressionKind::Field(base, member) => {
                self.word("Field");
                self.expression(base);
                self.name(&crate::member_name(member));
            }
            ExpressionKind::Column(row, column) => {
                self.word("Field");
                self.expression(row);
                self.name(&crate::name_of(column));
            }
            ExpressionKind::Element(list, index) => {
                self.word("Element");
                self.expression(list);
                self.expression(index);
            }
            ExpressionKind::Not(inner) => {
                self.word("Unary Not");
                self.expression(inner);
            }
            ExpressionKind::Negate(inner) => {
                self.word("Unary Negate");
                self.expression(inner);
            }
            ExpressionKind::Binary(operator, left, right) => {
                self.word(format_args!("Binary {operator:?}"));
                self.expression(left);
                self.expression(right);
            }
            ExpressionKind::Pure(path, arguments) => {
                let library = library();
                self.word("Call");
                self.function(called(path, |called| quote!(#library::ir::Function::pure::<#called>())));
                self.list(arguments, Self::expression);
            }
            ExpressionKind::Associated { path, arguments } => {
                self.word("Call");
                self.associated(path);
                self.list(arguments, Self::expression);
            }
            ExpressionKind::Tuple(parts) => {
                self.word("Tuple");
                self.list(parts, Self::expression);
            }
            ExpressionKind::List { elements, .. } => {
                self.word("List");
                self.list(elements, Self::expression);
            }
            ExpressionKind::Repeat { element, count, .. } => {
                self.word("Repeat");
                self.expression(element);
                self.constant(&quote!({ let count: ::core::primitive::usize = #count; count }), expression.span);
            }
            ExpressionKind::Record { path, fields, .. } => {
                self.word("Record");
                self.name(&path.segments.last().map(|last| crate::name_of(&last.ident)).unwrap_or_default());
                self.list(fields, |encoder, (member, value)| {
                    encoder.name(&crate::member_name(member));
                    encoder.expression(value);
                });
            }
            ExpressionKind::None => self.word("None"),
            ExpressionKind::Some(inner) => {
                self.word("Some");
                self.expression(inner);
            }
            ExpressionKind::If(condition, then, otherwise) => {
                self.word("If");
                self.expression(condition);
                self.expression(then);
                self.expression(otherwise);
            }
            ExpressionKind::Match(value, arms) => {
                self.word("Match");
                self.expression(value);
                self.list(arms, |encoder, (pattern, guard, value)| {
                    encoder.pattern(pattern);
                    encoder.option(guard.as_ref(), Self::expression);
                    encoder.expression(value);
                });
            }
            ExpressionKind::Block(bindings, value) => {
                self.word("Block");
                self.list(bindings, |encoder, (pattern, ty, value)| {
                    encoder.pattern(pattern);
                    encoder.typed(value, ty.as_ref());
                });
                self.expression(value);
            }
            ExpressionKind::Range { low, high, inclusive } => {
                self.word("Range");
                self.expression(low);
                self.expression(high);
                self.word(inclusive);
            }
            // Above.
            ExpressionKind::Reference(_) | ExpressionKind::Dereference(_) | ExpressionKind::Method { .. } => {}
        }
    }

    /// A conversion or constructor: by the type as written, or, where its name stands for another type, through the compiler.
    fn associated(&mut self, path: &syn::Path) {
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
                self.function(quote!(#library::ir::Function::Pure {
                    name: #name,
                    total: true,
                    evaluate: |arguments| #library::methods::apply(arguments, #call),
                }));
            }
            None => {
                self.word("Associated");
                self.name(&ty.map(crate::text).unwrap_or_default().replace(' ', ""));
                self.name(&function);
            }
        }
    }
}
