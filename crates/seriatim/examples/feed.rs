//! A feed: posts, followers, and counters beside both.
//!
//! `cargo run -p seriatim --example feed`. What to look at:
//! - `publish` numbers an author's posts by a column that it reads back, so two posts of an author follow each other.
//! - Likes and followers are counted in columns that are only added to.
//! - A timeline shows all authors at one moment.

use seriatim::procedure::plan::{Chopping, Options};
use seriatim::{Abort, Builder, Data, Database, Rng, Table, Text, TransactError, Tx, procedure, procedures, thread};

const USERS: u32 = 30;
const CLIENTS: u64 = 3;
const ACTIONS: u32 = 600;

#[derive(Table)]
#[table(name = "user", key(id), hash)]
struct User {
    id: u32,
    posts: u32,
    followers: i64,
}

#[derive(Table)]
#[table(name = "post", key(author, number), ordered)]
struct Post {
    author: u32,
    number: u32,
    #[column(immutable)]
    text: Text<80>,
    likes: i64,
}

/// A user who follows an author.
#[derive(Table)]
#[table(name = "follows", key(follower, author), ordered)]
struct Follows {
    follower: u32,
    author: u32,
}

#[derive(Table)]
#[table(name = "like", key(user, author, number), ordered)]
struct Like {
    user: u32,
    author: u32,
    number: u32,
}

/// A post as a timeline shows it.
#[derive(Data, Clone, Debug)]
struct Shown {
    author: u32,
    number: u32,
    text: Text<80>,
    likes: i64,
}

/// Publishes a post; returns its number among those of its author.
#[procedure]
fn publish(tx: &Tx, author: u32, text: Text<80>) -> Result<u32, Abort> {
    let number = tx.update::<User>(author, |user| {
        let number = user.posts;
        user.posts += 1;
        number
    })?;
    tx.insert(Post { author, number, text, likes: 0 })?;
    Ok(number)
}

/// Follows an author; returns whether that is new.
#[procedure]
fn follow(tx: &Tx, follower: u32, author: u32) -> Result<bool, Abort> {
    let known = tx.get::<Follows>((follower, author))?;
    if known.is_some() {
        return Ok(false);
    }
    tx.insert(Follows { follower, author })?;
    let _ = tx.update_if::<User>(author, |user| user.followers += 1)?;
    Ok(true)
}

/// Likes a post, once per user; returns whether that is new and the post exists.
#[procedure]
fn like(tx: &Tx, user: u32, author: u32, number: u32) -> Result<bool, Abort> {
    let known = tx.get::<Like>((user, author, number))?;
    if known.is_some() {
        return Ok(false);
    }
    let there = tx.update_if::<Post>((author, number), |post| post.likes += 1)?;
    if there.is_none() {
        return Ok(false);
    }
    tx.insert(Like { user, author, number })?;
    Ok(true)
}

/// The newest posts of each author that a user follows.
#[procedure]
fn timeline(tx: &Tx, user: u32) -> Result<Vec<Shown>, Abort> {
    let mut authors = Vec::new();
    for follows in tx.prefix::<Follows>((user,))? {
        authors.push(follows.author);
    }
    let mut shown = Vec::new();
    for author in &authors {
        for post in tx.prefix::<Post>((*author,)).rev().limit(3)? {
            shown.push(Shown {
                author: post.author,
                number: post.number,
                text: Text::truncated(post.text),
                likes: post.likes,
            });
        }
    }
    Ok(shown)
}

#[seriatim::pure]
fn counted_rows(rows: u64) -> i64 {
    rows as i64
}

/// Posts, followers and likes: by the counters, and by the rows.
#[procedure]
fn census(tx: &Tx, users: u32) -> Result<(Vec<i64>, Vec<i64>), Abort> {
    let (mut posts, mut followers, mut likes) = (0i64, 0i64, 0i64);
    for id in 0..users {
        let user = tx.require::<User>(id)?;
        posts += i64::from(user.posts);
        followers += user.followers;
    }
    let mut post_rows = 0i64;
    for post in tx.scan::<Post>(..)? {
        likes += post.likes;
        post_rows += 1;
    }
    let follower_rows = tx.scan::<Follows>(..).count()?;
    let like_rows = tx.scan::<Like>(..).count()?;
    let mut counted = Vec::new();
    counted.push(posts);
    counted.push(followers);
    counted.push(likes);
    let mut found = Vec::new();
    found.push(post_rows);
    found.push(counted_rows(follower_rows));
    found.push(counted_rows(like_rows));
    Ok((counted, found))
}

/// Opens a database, with its rows and procedures.
pub(crate) fn open(builder: Builder) -> Result<Database, Box<dyn std::error::Error>> {
    let db = builder.open()?;
    let users = db.create::<User>()?;
    db.create::<Post>()?;
    db.create::<Follows>()?;
    db.create::<Like>()?;
    db.register(procedures![publish, follow, like, timeline, census])?;
    let fill = |tx: &Tx| (0..USERS).try_for_each(|id| tx.insert(&users, &User { id, posts: 0, followers: 0 }));
    db.session().transact(fill)?;
    Ok(db)
}

/// Runs the example under this protocol; returns into which pieces its procedures may be cut.
pub(crate) fn run(protocol: &str) -> Result<Chopping, Box<dyn std::error::Error>> {
    let db = open(Database::builder().protocol(protocol))?;
    let mut session = db.session();
    let client = |client: u64| -> Result<u64, TransactError> {
        let (mut session, mut rng, mut shown) = (db.session(), Rng::from_seed(client), 0);
        for action in 0..ACTIONS {
            // A few authors write most posts.
            let author = rng.below(u64::from(USERS)).min(rng.below(u64::from(USERS))) as u32;
            let user = rng.below(u64::from(USERS)) as u32;
            match rng.below(10) {
                0..2 => {
                    let text = Text::truncated(&format!("action {action} of client {client}"));
                    session.call(publish, &(author, text))?;
                }
                2..4 => {
                    session.call(follow, &(user, author))?;
                }
                4..8 => {
                    session.call(like, &(user, author, rng.below(10) as u32))?;
                }
                _ => shown += session.call(timeline, &user)?.len() as u64,
            }
        }
        Ok(shown)
    };
    let shown = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        clients.into_iter().map(|client| client.join().expect("no client panics")).sum::<Result<u64, _>>()
    })?;
    let (counted, found) = session.call(census, &USERS)?.into_value();
    println!("{} posts, {} followers, {} likes; {shown} posts shown", counted[0], counted[1], counted[2]);
    assert_eq!(counted, found, "every counter tells how many rows there are");
    Ok(db.chopping(Options::OPTIMIZED)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", run("auto")?);
    Ok(())
}
