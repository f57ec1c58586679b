//! DBX, figure 1: what regions hold and how long they may last.

use crate::Paper;
use crate::figure::{Axis, Claim, Figure, Point, Quantity, Shows, View};
use crate::measured::{Cores, Size};
use crate::metric::REGION_ABORTS;
use crate::setting::Setting;

/// KiB that the parts of the figure touch, and microseconds: of the large size, and of the small one.
const WRITTEN: [&[u32]; 2] = [&[4, 8, 16, 24, 32, 40, 48, 64], &[4, 64]];
const READ: [&[u32]; 2] = [&[16, 64, 128, 256, 512, 1024, 2048, 4096], &[16, 64]];
const BESIDE: [&[u32]; 2] = [&[16, 32, 64, 128, 256, 512], &[16, 64]];
const TIMES: [&[u32]; 2] = [&[1, 10, 100, 1000, 2000, 4000, 8000], &[1, 100]];

/// KiB written beside those that are read, in (c).
const HALF: u32 = 16;

fn points(setting: &Setting) -> Vec<Point> {
    let of = |places: [&'static [u32]; 2]| places[usize::from(setting.size == Size::Small)];
    let alone = setting.real().into_iter().take(1).map(|scene| ("alone", scene));
    let all = setting.widest(4).into_iter().map(|scene| ("all", scene));
    let mut points = Vec::new();
    for (series, scene) in alone.chain(all) {
        let htm = setting.regions(scene.cores);
        let mut add = |part, series: &str, x: u32, command: String| {
            points.push(setting.below(part, series, f64::from(x), scene, &format!("regions {command} --htm {htm}")));
        };
        of(WRITTEN).iter().for_each(|&kib| add("written", series, kib, format!("--written {kib}")));
        of(READ).iter().for_each(|&kib| add("read", series, kib, format!("--read {kib}")));
        if series == "alone" {
            continue;
        }
        for &kib in of(BESIDE) {
            let both = format!("--read {kib} --written {HALF}");
            add("beside", "writes first", kib, format!("{both} --writes-first"));
            add("beside", "reads first", kib, both);
        }
        // Simulated cores have no interrupts.
        if scene.cores == Cores::Real {
            of(TIMES).iter().for_each(|&time| add("time", series, time, format!("--microseconds {time}")));
        }
    }
    points
}

const fn view(title: &'static str, part: &'static str, x: &'static str) -> View {
    View { title, part, x: Axis::Number(x), shows: Shows::One(REGION_ABORTS) }
}

const fn claim(says: &'static str, view: usize, quantity: Quantity, min: f64, max: f64) -> Claim {
    Claim::new(says, quantity).of_view(view).between(min, max).about_regions()
}

pub(crate) const FIGURE: Figure = Figure {
    paper: Paper::Dbx,
    number: "1",
    title: "What regions hold, and how long they may last",
    paper_shows: "With four threads on cores of their own a region writes up to 31 KB, where 90 % abort, and reads up to 4 MB, where 47 % do; with \
                  two threads a core it is 22 KB (99 %) and 2 MB (58 %). Reading before writing leaves room for more. Aborts grow with a region's time, up to 4 \
                  ms, the interval of the timer, which none survives.",
    here: "Each thread runs one region after another over lines of its own that follow each other, each once: if it aborts, its body runs without. \
           `alone` is one thread, `all` are all that the machine has; whether two share a cache is the machine's to say. Simulated cores show the limits that were \
           measured and put into the model, and have no interrupts.",
    points,
    views: &[
        view("written", "written", "KiB written"),
        view("read", "read", "KiB read"),
        view("read beside 16 KiB written", "beside", "KiB read"),
        view("time", "time", "microseconds"),
    ],
    claims: &[
        claim("no region writes 64 KiB", 0, Quantity::ValueAt("all", 64.0), 99.0, 100.0),
        claim("most read as much", 1, Quantity::ValueAt("all", 64.0), f64::NEG_INFINITY, 50.0),
        claim("about half of them read 4 MiB", 1, Quantity::ValueAt("all", 4096.0), 40.0, 60.0).because("How lines that are read and have left the first cache are kept track of is the processor's: newer ones hold less."),
        claim(
            "who reads 256 KiB before it writes aborts less than who writes first",
            2,
            Quantity::RatioAt("reads first", "writes first", 256.0),
            f64::NEG_INFINITY,
            0.95,
        ),
        claim("short regions hardly abort", 3, Quantity::ValueAt("all", 10.0), f64::NEG_INFINITY, 5.0),
        claim("none outlives the timer's interval", 3, Quantity::ValueAt("all", 8000.0), 99.0, 100.0),
    ],
};
