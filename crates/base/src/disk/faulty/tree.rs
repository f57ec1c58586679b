//! Directories and files of the simulated disk, and their space.
//!
//! Invariant: `sectors` is the space of files that have a name. A node is kept while a name leads to it, now or
//! after a power cut, or while a handle is open. All paths start at the root; `..` is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::path::{Component, Path};

use super::super::DirEntry;
use super::contents::Contents;
use super::names::Names;
use crate::Rng;

pub(super) type NodeId = u64;

const ROOT: NodeId = 0;

/// Below this many nodes no garbage is collected.
const SWEEP_NODES_MIN: usize = 64;

#[derive(Debug)]
pub(super) struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    sectors: u64,
    sweep_nodes: usize,
}

#[derive(Debug)]
enum Node {
    Dir(Dir),
    File(File),
}

#[derive(Debug)]
struct Dir {
    names: Names,
    /// Whether it has a name. If not, no file can be created in it.
    linked: bool,
}

impl Dir {
    fn new(names: Names) -> Dir {
        Dir { names, linked: true }
    }
}

/// A path relative to a directory: the root, or a held one.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'p> {
    pub(super) dir: NodeId,
    pub(super) path: &'p Path,
}

impl<'p> From<&'p Path> for At<'p> {
    fn from(path: &'p Path) -> At<'p> {
        At { dir: ROOT, path }
    }
}

#[derive(Debug)]
pub(super) struct File {
    pub(super) contents: Contents,
    pub(super) handles: usize,
    /// Whether it has a name. If not, its space is not counted.
    pub(super) linked: bool,
}

impl File {
    fn new(contents: Contents) -> File {
        File { contents, handles: 0, linked: true }
    }
}

impl Tree {
    /// A tree with an empty root.
    pub(super) fn new() -> Tree {
        let nodes = BTreeMap::from([(ROOT, Node::Dir(Dir::new(Names::default())))]);
        Tree { nodes, next: ROOT + 1, sectors: 0, sweep_nodes: SWEEP_NODES_MIN }
    }

    /// The number of occupied sectors.
    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// The file at a path.
    pub(super) fn file_at(&self, at: At<'_>) -> io::Result<NodeId> {
        let id = self.find(at)?;
        match self.nodes[&id] {
            Node::File(_) => Ok(id),
            Node::Dir(_) => Err(ErrorKind::IsADirectory.into()),
        }
    }

    /// The file or directory at a path.
    pub(super) fn at(&self, at: At<'_>) -> io::Result<(NodeId, bool)> {
        let id = self.find(at)?;
        Ok((id, matches!(self.nodes[&id], Node::Dir(_))))
    }

    /// An open file.
    pub(super) fn file(&mut self, id: NodeId) -> &mut File {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => file,
            _ => unreachable!("open files are kept, and are files"),
        }
    }

    pub(super) fn dir(&mut self, at: At<'_>) -> io::Result<&mut Names> {
        let id = self.find(at)?;
        self.names(id)
    }

    /// Whether a held directory has a name.
    pub(super) fn is_linked(&self, dir: NodeId) -> bool {
        matches!(self.nodes.get(&dir), Some(Node::Dir(Dir { linked: true, .. })))
    }

    pub(super) fn found(&self, at: At<'_>, name: &OsStr) -> io::Result<DirEntry> {
        let id = self.find(at)?;
        Ok(self.describe(name, id))
    }

    pub(super) fn list(&mut self, dir: At<'_>) -> io::Result<Vec<DirEntry>> {
        let names = self.dir(dir)?.live().clone();
        Ok(names.iter().map(|(name, &id)| self.describe(name, id)).collect())
    }

    pub(super) fn create_file(&mut self, at: At<'_>) -> io::Result<NodeId> {
        let (dir, name) = self.place(at)?;
        if self.names(dir)?.get(name).is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.link(dir, name, Node::File(File::new(Contents::default())))
    }

    pub(super) fn create_dir_all(&mut self, dir: At<'_>) -> io::Result<()> {
        let mut at = dir.dir;
        for name in names_of(dir.path) {
            let name = name?;
            at = match self.names(at)?.get(name) {
                Some(id) => id,
                None => self.link(at, name, Node::Dir(Dir::new(Names::default())))?,
            };
        }
        match self.nodes[&at] {
            Node::Dir(_) => Ok(()),
            Node::File(_) => Err(ErrorKind::AlreadyExists.into()),
        }
    }

    /// Renames within one directory.
    pub(super) fn rename(&mut self, from: At<'_>, to: At<'_>) -> io::Result<()> {
        let (dir, old) = self.place(from)?;
        let (_, new) = self.place(to)?;
        let names = self.names(dir)?;
        let id = names.get(old).ok_or(ErrorKind::NotFound)?;
        let replaced = names.get(new);
        if old == new {
            return Ok(());
        }
        if let Some(replaced) = replaced {
            match (&self.nodes[&id], &self.nodes[&replaced]) {
                (Node::File(_), Node::Dir(_)) => return Err(ErrorKind::IsADirectory.into()),
                (Node::Dir(_), Node::File(_)) => return Err(ErrorKind::NotADirectory.into()),
                (Node::Dir(_), Node::Dir(dir)) if !dir.names.live().is_empty() => {
                    return Err(ErrorKind::DirectoryNotEmpty.into());
                }
                _ => self.release(replaced),
            }
        }
        self.names(dir)?.rename(old, new, id);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, at: At<'_>) -> io::Result<()> {
        let id = self.file_at(at)?;
        let (dir, name) = self.place(at)?;
        self.release(id);
        self.names(dir)?.unlink(name);
        Ok(())
    }

    pub(super) fn remove_dir_all(&mut self, at: At<'_>) -> io::Result<()> {
        let id = self.find(at)?;
        let (dir, name) = self.place(at)?;
        self.empty(id)?;
        self.release(id);
        self.names(dir)?.unlink(name);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, dir: At<'_>) -> io::Result<()> {
        self.dir(dir)?.sync();
        if self.nodes.len() >= self.sweep_nodes {
            self.sweep();
        }
        Ok(())
    }

    /// Writes if all bytes fit into a total of `space` sectors.
    ///
    /// # Errors
    /// `StorageFull` with the number of bytes that would fit, before anything is written; `FileTooLarge`.
    pub(super) fn write_at(&mut self, id: NodeId, bytes: &[u8], offset: u64, space: u64) -> Result<(), WriteError> {
        Contents::check_end(offset, bytes.len() as u64).map_err(WriteError::Refused)?;
        let free = space.saturating_sub(self.sectors);
        let file = self.file(id);
        let (fitting, taken) = file.contents.fitting(offset, bytes.len(), if file.linked { free } else { u64::MAX });
        if fitting < bytes.len() {
            return Err(WriteError::Full { fitting });
        }
        file.contents.write_at(bytes, offset);
        if file.linked {
            self.sectors += taken;
        }
        Ok(())
    }

    pub(super) fn set_bytes(&mut self, id: NodeId, bytes: u64) -> io::Result<()> {
        Contents::check_end(bytes, 0)?;
        let file = self.file(id);
        let freed = file.contents.set_bytes(bytes);
        if file.linked {
            self.sectors -= freed;
        }
        Ok(())
    }

    /// Changes a file's contents beneath all handles. `range` must lie within the file.
    pub(super) fn corrupt(
        &mut self,
        path: &Path,
        range: (u64, u64),
        change: impl FnOnce(&mut Contents),
    ) -> io::Result<()> {
        let id = self.file_at(path.into())?;
        let contents = &mut self.file(id).contents;
        if range.0.checked_add(range.1).is_none_or(|end| end > contents.bytes()) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let before = contents.allocated();
        change(contents);
        let after = contents.allocated();
        self.sectors += after - before;
        Ok(())
    }

    /// A power cut. No handle is open any more.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        for node in self.nodes.values_mut() {
            match node {
                Node::Dir(dir) => {
                    dir.names.crash(rng);
                    dir.linked = true;
                }
                Node::File(file) => file.handles = 0,
            }
        }
        self.sweep();
        self.sectors = 0;
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.contents.crash(rng);
                file.linked = true;
                self.sectors += file.contents.allocated();
            }
        }
    }

    /// A tree of the durable contents.
    pub(super) fn durable(&self) -> Tree {
        let mut tree = Tree { nodes: BTreeMap::new(), next: self.next, sectors: 0, sweep_nodes: SWEEP_NODES_MIN };
        let mut open = vec![ROOT];
        while let Some(id) = open.pop() {
            let node = match &self.nodes[&id] {
                Node::Dir(Dir { names, .. }) => {
                    open.extend(names.durable().values());
                    Node::Dir(Dir::new(Names::of(names.durable().clone())))
                }
                Node::File(file) => {
                    let contents = file.contents.durable();
                    tree.sectors += contents.allocated();
                    Node::File(File::new(contents))
                }
            };
            tree.nodes.insert(id, node);
        }
        tree
    }

    pub(super) fn find(&self, At { dir, path }: At<'_>) -> io::Result<NodeId> {
        let mut at = dir;
        for name in names_of(path) {
            // A held directory may have been collected.
            let node = self.nodes.get(&at).ok_or(ErrorKind::NotFound)?;
            let Node::Dir(Dir { names, .. }) = node else { return Err(ErrorKind::NotADirectory.into()) };
            at = names.get(name?).ok_or(ErrorKind::NotFound)?;
        }
        self.nodes.contains_key(&at).then_some(at).ok_or(ErrorKind::NotFound.into())
    }

    /// The directory and the name of a path that may not exist.
    fn place<'a>(&self, At { dir, path }: At<'a>) -> io::Result<(NodeId, &'a OsStr)> {
        match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => Ok((self.find(At { dir, path: above })?, name)),
            _ => Err(ErrorKind::InvalidInput.into()),
        }
    }

    fn names(&mut self, dir: NodeId) -> io::Result<&mut Names> {
        match self.nodes.get_mut(&dir) {
            Some(Node::Dir(dir)) => Ok(&mut dir.names),
            Some(Node::File(_)) => Err(ErrorKind::NotADirectory.into()),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn describe(&self, name: &OsStr, id: NodeId) -> DirEntry {
        let (is_dir, bytes) = match &self.nodes[&id] {
            Node::Dir(_) => (true, 0),
            Node::File(file) => (false, file.contents.bytes()),
        };
        DirEntry { name: name.to_owned(), is_dir, bytes }
    }

    fn link(&mut self, dir: NodeId, name: &OsStr, node: Node) -> io::Result<NodeId> {
        let id = self.next;
        let linked = self.is_linked(dir);
        let names = self.names(dir)?;
        if !linked {
            return Err(ErrorKind::NotFound.into());
        }
        names.link(name, id);
        self.nodes.insert(id, node);
        self.next += 1;
        Ok(id)
    }

    /// Removes the name of a file or directory, and frees the space of a file.
    fn release(&mut self, id: NodeId) {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => {
                file.linked = false;
                self.sectors -= file.contents.allocated();
            }
            Some(Node::Dir(dir)) => dir.linked = false,
            None => {}
        }
    }

    fn empty(&mut self, dir: NodeId) -> io::Result<()> {
        for (name, id) in self.names(dir)?.live().clone() {
            if let Node::Dir(_) = self.nodes[&id] {
                self.empty(id)?;
            }
            self.release(id);
            self.names(dir)?.unlink(&name);
        }
        Ok(())
    }

    /// Closes every file, since their owners are gone.
    pub(super) fn close_all(&mut self) {
        for node in self.nodes.values_mut() {
            if let Node::File(file) = node {
                file.handles = 0;
            }
        }
    }

    /// Collects unreachable nodes.
    fn sweep(&mut self) {
        let is_open = |node: &Node| matches!(node, Node::File(file) if file.handles > 0);
        let open = self.nodes.iter().filter(|(_, node)| is_open(node)).map(|(&id, _)| id);
        let mut kept: BTreeSet<NodeId> = open.collect();
        let mut dirs = vec![ROOT];
        while let Some(id) = dirs.pop() {
            if let (true, Some(Node::Dir(dir))) = (kept.insert(id), self.nodes.get(&id)) {
                dirs.extend(dir.names.nodes());
            }
        }
        self.nodes.retain(|id, _| kept.contains(id));
        self.sweep_nodes = SWEEP_NODES_MIN.max(2 * self.nodes.len());
    }
}

/// Why nothing was written.
pub(super) enum WriteError {
    Full { fitting: usize },
    Refused(io::Error),
}

/// The names in a path.
fn names_of(path: &Path) -> impl Iterator<Item = io::Result<&OsStr>> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(Ok(name)),
        Component::RootDir | Component::CurDir => None,
        Component::ParentDir | Component::Prefix(_) => Some(Err(ErrorKind::InvalidInput.into())),
    })
}
