//! Inputs of the four transactions as plain data, and their generator. Articles and users are drawn by Zipf's law, the
//! first the hottest, and texts have a hundred characters.

use super::load::LINE;
use super::options::Options;
use super::schema::Line;
use crate::random::{Zipfian, a_text};
use seriatim::{Data, Rng};

/// Input of GetArticle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct GetArticleInput {
    /// The article.
    pub a_id: u32,
}

/// Input of GetArticles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct GetArticlesInput {
    /// The number with which the page begins.
    pub first: u32,
}

/// Input of AddComment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct AddCommentInput {
    /// The article commented on.
    pub a_id: u32,
    /// The user who comments.
    pub u_id: u32,
    /// The comment.
    pub text: Line,
}

/// Input of UpdateUserInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Data)]
pub struct UpdateUserInfoInput {
    /// The user.
    pub u_id: u32,
    /// The new last name.
    pub lastname: Line,
}

/// Generates the inputs of one terminal.
#[derive(Clone, Debug)]
pub struct Inputs {
    rng: Rng,
    articles: Zipfian,
    users: Zipfian,
}

impl Inputs {
    /// Inputs about the articles and users of `options`.
    ///
    /// # Panics
    /// As [`Articles::new`](super::Articles::new).
    pub fn new(rng: Rng, options: &Options) -> Inputs {
        let articles = Zipfian::new(options.articles.into(), options.theta);
        Inputs { rng, articles, users: Zipfian::new(options.users.into(), options.theta) }
    }

    /// The generator, for choices beside the inputs.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }

    fn a_id(&mut self) -> u32 {
        self.articles.draw(&mut self.rng) as u32
    }

    fn u_id(&mut self) -> u32 {
        self.users.draw(&mut self.rng) as u32
    }

    fn line(&mut self) -> Line {
        a_text(&mut self.rng, LINE, LINE)
    }

    /// An input of GetArticle.
    pub fn get_article(&mut self) -> GetArticleInput {
        GetArticleInput { a_id: self.a_id() }
    }

    /// An input of GetArticles: the articles after one.
    pub fn get_articles(&mut self) -> GetArticlesInput {
        GetArticlesInput { first: self.a_id() + 1 }
    }

    /// An input of AddComment.
    pub fn add_comment(&mut self) -> AddCommentInput {
        AddCommentInput { a_id: self.a_id(), u_id: self.u_id(), text: self.line() }
    }

    /// An input of UpdateUserInfo.
    pub fn update_user_info(&mut self) -> UpdateUserInfoInput {
        UpdateUserInfoInput { u_id: self.u_id(), lastname: self.line() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn articles_and_users_are_those_of_the_options_the_first_the_hottest() {
        let options = Options { users: 30, ..Options::new(500, 1) };
        let mut inputs = Inputs::new(Rng::from_seed(2), &options);
        let (mut articles, mut users) = (vec![0u32; 500], vec![0u32; 30]);
        for _ in 0..20_000 {
            let input = inputs.add_comment();
            assert_eq!(input.text.len(), LINE);
            articles[input.a_id as usize] += 1;
            users[input.u_id as usize] += 1;
        }
        assert!(articles[0] > articles[1] && articles[1] > 2 * articles[50], "{articles:?}");
        assert!(users[0] > users[1] && users.iter().all(|&n| n > 0), "{users:?}");
    }
}
