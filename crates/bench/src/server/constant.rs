//! A server that answers constants: it cuts and decodes the messages of clients as ours does, and has no database.
//!
//! Its answers to prepared statements are those of ours, as long: a row of one column to SELECT, a tag to others.

use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use seriatim_wire::frames::{Frames, Handling, Piece, client_length_max};
use seriatim_wire::message::{decode, encode};
use seriatim_wire::messages::data::{DataRow, FieldDescription, NoData, RowDescription};
use seriatim_wire::messages::extendedquery::{Bind, BindComplete, Describe, Execute, Parse, ParseComplete};
use seriatim_wire::messages::response::{CommandComplete, ReadyForQuery, TransactionStatus};
use seriatim_wire::messages::startup::Authentication;
use seriatim_wire::startup::{self, First};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Serves clients of `listener` until `stop` completes.
pub(super) async fn serve(listener: TcpListener, stop: impl Future<Output = ()>) {
    let run = |stream: TcpStream, _: SocketAddr, _| async move { drop(converse(stream).await) };
    seriatim_wire::clients::serve(listener, run, |_| {}, stop, std::future::ready(())).await;
}

async fn converse(mut stream: TcpStream) -> io::Result<()> {
    seriatim_wire::prepare(&stream)?;
    let (mut input, mut output, mut frames) = (BytesMut::new(), BytesMut::new(), Frames::default());
    let Some(First::Session(_)) = startup::read(&mut stream, &mut input).await? else { return Ok(()) };
    let ready = encode(&ReadyForQuery::new(TransactionStatus::Idle));
    output.extend_from_slice(&encode(&Authentication::Ok));
    output.extend_from_slice(&ready);
    // Whether the statement of each name has rows.
    let (mut selects, mut is_select) = (std::collections::HashMap::new(), false);
    let handling = |tag, length| match length <= client_length_max(tag, true) {
        true => Handling::Gather,
        false => Handling::Refuse,
    };
    loop {
        match frames.next(&mut input, handling).map_err(io::Error::other)? {
            Some(Piece::Whole(message) | Piece::Fragment(_, message)) => match message[0] {
                b'P' => {
                    let parse: Parse = decode(&message).map_err(io::Error::other)?;
                    selects.insert(parse.name.unwrap_or_default(), parse.query.starts_with("select"));
                    output.extend_from_slice(&encode(&ParseComplete::new()));
                }
                b'B' => {
                    let bind: Bind = decode(&message).map_err(io::Error::other)?;
                    is_select = selects.get(&bind.statement_name.unwrap_or_default()).copied().unwrap_or_default();
                    output.extend_from_slice(&encode(&BindComplete::new()));
                }
                b'D' => {
                    let _: Describe = decode(&message).map_err(io::Error::other)?;
                    output.extend_from_slice(&match is_select {
                        true => encode(&RowDescription::new(vec![column()])),
                        false => encode(&NoData::new()),
                    });
                }
                b'E' => {
                    let _: Execute = decode(&message).map_err(io::Error::other)?;
                    if is_select {
                        output.extend_from_slice(&encode(&DataRow::new(value(), 1)));
                    }
                    let tag = if is_select { "SELECT 1" } else { "UPDATE 1" };
                    output.extend_from_slice(&encode(&CommandComplete::new(tag.to_owned())));
                }
                b'S' => output.extend_from_slice(&ready),
                b'Q' => {
                    output.extend_from_slice(&encode(&CommandComplete::new("UPDATE 1".to_owned())));
                    output.extend_from_slice(&ready);
                }
                _ => return Ok(()),
            },
            None => {
                if !output.is_empty() {
                    stream.write_all(&output.split()).await?;
                }
                if stream.read_buf(&mut input).await? == 0 {
                    return Ok(());
                }
            }
        }
    }
}

fn column() -> FieldDescription {
    FieldDescription::new("balance".to_owned(), 0, 0, 23, 4, -1, 0)
}

/// A value of one column, with its length.
fn value() -> BytesMut {
    BytesMut::from(&Bytes::from_static(b"\0\0\0\x0a1000000000")[..])
}
