//! Memory that an operation may turn out to need. Bodies do not allocate: one that lacks memory ends, saying
//! what it needs, and is run again with it.

use crate::index::StoreCx;
use seriatim_memory::OutOfMemory;
use std::ptr::NonNull;

/// Sizes of the needed blocks, 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// A leaf, or an interior node beside the one that is split.
    pub(crate) node: usize,
    /// An interior node above the root.
    pub(crate) root: usize,
    /// The out-of-line value of a separator.
    pub(crate) out_of_line: usize,
}

/// A block with its size.
type Block = Option<(NonNull<u8>, usize)>;

/// Blocks that no other thread can reach.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    node: Block,
    root: Block,
    out_of_line: Block,
}

impl Spare {
    /// The blocks, if they are exactly what is needed. They stay here until [`Spare::used`] forgets all of them.
    pub(crate) fn take(&self, need: Need) -> Option<Taken> {
        let fits = |block: Block, bytes: usize| match block {
            Some((memory, has)) => (has == bytes).then_some(memory),
            None => (bytes == 0).then_some(NonNull::dangling()),
        };
        Some(Taken {
            node: fits(self.node, need.node)?,
            root: fits(self.root, need.root)?,
            out_of_line: fits(self.out_of_line, need.out_of_line)?,
        })
    }

    /// Holds exactly what is needed from now on.
    pub(crate) fn provide(&mut self, cx: &mut StoreCx<'_>, need: Need) -> Result<(), OutOfMemory> {
        for (block, bytes) in
            [(&mut self.node, need.node), (&mut self.root, need.root), (&mut self.out_of_line, need.out_of_line)]
        {
            if block.map_or(0, |block| block.1) != bytes {
                give_back(cx, block);
                if bytes > 0 {
                    *block = Some((cx.local.allocate(cx.outside, bytes)?, bytes));
                }
            }
        }
        Ok(())
    }

    /// Whether it holds nothing.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.node.is_none() && self.root.is_none() && self.out_of_line.is_none()
    }

    /// The blocks are linked now.
    pub(crate) fn used(&mut self) {
        *self = Spare::default();
    }

    /// Gives back what was not used.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, cx: &mut StoreCx<'_>) {
        if !self.is_empty() {
            self.give_back_some(cx);
        }
    }

    #[cold]
    fn give_back_some(&mut self, cx: &mut StoreCx<'_>) {
        for block in [&mut self.node, &mut self.root, &mut self.out_of_line] {
            give_back(cx, block);
        }
    }
}

fn give_back(cx: &mut StoreCx<'_>, block: &mut Block) {
    if let Some((memory, bytes)) = block.take() {
        // SAFETY: allocated in `provide`, and never linked: `used` forgets what was.
        unsafe { cx.local.release(memory, bytes) };
    }
}

/// The blocks that a body may link, each of the size that it requested, dangling where it requested none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) node: NonNull<u8>,
    pub(crate) root: NonNull<u8>,
    pub(crate) out_of_line: NonNull<u8>,
}
