//! The module graph of each crate, read from the sources, and the layers of Gear1's runtime.
//!
//! An arrow leads from a module to the module whose item it names, by `use` or by a path, directly
//! and through re-exports; and, of the crates that Gear1's images are linked from, to the module
//! whose function the module calls, methods included. What other crates call by a method has an
//! arrow only where a path names the method's type, which need not be the module of the method's
//! `impl`. Modules below one module are compared with each other: an arrow between
//! two of them stands for those between what is below them, and a module and the modules inside it
//! are one. Code under `#[cfg(test)]` has no arrows.
//!
//! Invariant: a `mod` without a file is an error, so that no source is passed over.

mod linked;
mod syntax;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path as FilePath;

use anyhow::{Context as _, Result, bail, ensure};
use workbench::workspace;

pub(super) use self::linked::{Call, calls};
use self::syntax::Module;

/// The crate whose modules stand in layers.
const LAYERED: &str = "gear1/runtime/src/main.rs";
/// Where the layers stand, and below which heading.
const LAYERS: &str = "docs/ARCHITECTURE.md";
/// Other tables of the document are no floors.
const HEADING: &str = "### Layers of the runtime";
/// More re-exports of re-exports than any name has. Names that import each other in a circle would
/// else never end.
const MOST_STEPS: usize = 16;

/// A module's path below the crate's root. Empty for the root itself.
type Name = Vec<String>;

/// The modules of one crate.
#[derive(Debug, Default)]
struct Crate {
    /// With the file of each, for messages.
    modules: BTreeMap<Name, (String, Module)>,
}

/// Between the modules below one module: by those that an arrow leads from and to, where it is. One
/// place is kept for each arrow: that is enough to find the line, and a message stays short.
type Arrows = BTreeMap<(String, String), String>;

/// Result for all crates. Totals are printed as well, so that a reader sees that something was
/// looked at.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Libraries and programs, tests' own included.
    pub(super) crates: usize,
    /// Of all crates.
    pub(super) modules: usize,
    /// Between modules of one parent: what is checked.
    pub(super) arrows: usize,
    /// Floors and modules of the runtime.
    pub(super) floors: (usize, usize),
    /// Violations: circles, arrows up, modules without a floor.
    pub(super) wrong: Vec<String>,
}

/// Looks at all crates of the workspace, and at the calls of the linked images. Crates that link
/// into an image have the arrows of their calls too. Methods are called without a path, so that the
/// sources alone would show a runtime with fewer arrows than it has.
pub(super) fn check(calls: &[Call]) -> Result<Report> {
    let root = workspace::root();
    let read = |file: &str| fs::read_to_string(root.join(file)).ok();
    let mut report = Report::default();
    for file in roots(root)? {
        let of = Crate::read(&file, &read)?;
        report.crates += 1;
        report.modules += of.modules.len();
        let mut all = of.arrows();
        of.add_calls(&mut all, &crate_name(&file), calls);
        for (parent, arrows) in &all {
            report.add_circles(&file, parent, arrows);
        }
        if file == LAYERED {
            let text = read(LAYERS).with_context(|| format!("no {LAYERS}"))?;
            report.add_floors(&floors(&text)?, &of, &all[&Name::new()]);
        }
    }
    ensure!(report.floors.1 > 1, "{LAYERED} has no modules");
    Ok(report)
}

impl Report {
    /// Adds the arrows between the modules below one, and the circles among them. Each parent is
    /// looked at by itself: two modules with the same name below different parents are different
    /// nodes.
    fn add_circles(&mut self, file: &str, parent: &[String], arrows: &Arrows) {
        self.arrows += arrows.len();
        let below: String = parent.iter().map(|name| format!(": {name}")).collect();
        let found = circles(arrows).into_iter();
        self.wrong
            .extend(found.map(|circle| format!("{file}{below}: {circle}")));
    }

    /// Adds the floors of the layered crate, and what does not fit them. Floors exist at the top of
    /// the crate alone; what is inside a module may lie anywhere below it without harm.
    fn add_floors(&mut self, floors: &BTreeMap<String, u32>, of: &Crate, arrows: &Arrows) {
        let modules = of.below(&[]);
        self.wrong.extend(up(floors, &modules, arrows));
        let count = floors.values().collect::<BTreeSet<_>>().len();
        self.floors = (count, modules.len());
    }
}

/// Returns the root files of all libraries and programs below a directory. The tree is searched,
/// not `Cargo.toml`: a crate that a member list lacks would else be looked at by nobody.
fn roots(root: &FilePath) -> Result<Vec<String>> {
    let mut roots = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).context(directory.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let name = name.unwrap_or_default();
            let relative = path.strip_prefix(root)?.to_str().unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if is_root(relative, name) {
                roots.push(relative.to_owned());
            }
        }
    }
    roots.sort();
    Ok(roots)
}

/// Tells whether a crate begins with this file, by the places that cargo looks at by itself.
/// Programs in `src/bin` are crates of their own, whose modules no library sees.
fn is_root(path: &str, name: &str) -> bool {
    let (directory, _) = path.rsplit_once('/').unwrap_or_default();
    directory.ends_with("src") && matches!(name, "lib.rs" | "main.rs")
        || directory.ends_with("src/bin") && name.ends_with(".rs")
        || directory.contains("src/bin/") && name == "main.rs"
}

impl Crate {
    /// Reads a crate from its root file on. `read` gives a file's text by its path from the
    /// workspace on. Tests pass a map.
    fn read(root: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let mut this = Self::default();
        let text = read(root).with_context(|| format!("no {root}"))?;
        let (directory, _) = root.rsplit_once('/').unwrap_or_default();
        let module = syntax::read(&text).context(root.to_owned())?;
        this.add(Vec::new(), root, directory, module, read)?;
        Ok(this)
    }

    /// Recursion follows the nesting of modules, which a person has written.
    fn add(
        &mut self,
        name: Name,
        file: &str,
        directory: &str,
        module: Module,
        read: &dyn Fn(&str) -> Option<String>,
    ) -> Result<()> {
        for (child, inline) in &module.inline {
            let directory = format!("{directory}/{child}");
            self.add(below(&name, child), file, &directory, inline.clone(), read)?;
        }
        for (child, given) in &module.files {
            let files = candidates(file, directory, child, given.as_deref());
            let found = files.iter().find_map(|file| Some((file, read(file)?)));
            let Some((of_child, text)) = found else {
                bail!("{file}: mod {child} has neither {}", files.join(" nor "));
            };
            let inner = syntax::read(&text).context(of_child.clone())?;
            let directory = format!("{directory}/{child}");
            self.add(below(&name, child), of_child, &directory, inner, read)?;
        }
        self.modules.insert(name, (file.to_owned(), module));
        Ok(())
    }

    /// Returns the names of the modules right below one. Only the children are nodes of one graph;
    /// deeper modules count for the child that they are in.
    fn below(&self, parent: &[String]) -> BTreeSet<String> {
        let inside = self
            .modules
            .keys()
            .filter(|name| name.len() == parent.len() + 1);
        let inside = inside.filter(|name| name.starts_with(parent));
        inside.filter_map(|name| name.last().cloned()).collect()
    }

    /// Returns the arrows between modules of one parent, by parent. Imports count as well as paths:
    /// a name that is imported and used by itself leaves no path in the code.
    fn arrows(&self) -> BTreeMap<Name, Arrows> {
        let mut all: BTreeMap<Name, Arrows> = BTreeMap::new();
        for (from, (file, module)) in &self.modules {
            let imported = module.imports.iter().map(|import| &import.path);
            for path in imported.chain(&module.paths) {
                for to in self.named(from, &path.segments, 0) {
                    self.add_arrow(&mut all, from, &to, &format!("{file}:{}", path.line));
                }
            }
        }
        // A crate of one floor is looked at as well.
        all.entry(Vec::new()).or_default();
        all
    }

    /// Adds the arrows of calls to those of names. The names of functions in an image carry their
    /// modules, as the compiler mangled them.
    fn add_calls(&self, all: &mut BTreeMap<Name, Arrows>, name: &str, calls: &[Call]) {
        for Call { from, to, place } in calls {
            let is_of_this = |path: &[String]| path.first().is_some_and(|first| first == name);
            if is_of_this(from) && is_of_this(to) {
                self.add_arrow(
                    all,
                    &self.module_of(&from[1..]),
                    &self.module_of(&to[1..]),
                    place,
                );
            }
        }
    }

    /// Adds an arrow between the modules in which two paths part, unless one module is inside the
    /// other. The first place wins, which is the first of the file: messages stay the same from run
    /// to run.
    fn add_arrow(
        &self,
        all: &mut BTreeMap<Name, Arrows>,
        from: &[String],
        to: &[String],
        place: &str,
    ) {
        let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if let (Some(a), Some(b)) = (from.get(same), to.get(same)) {
            let arrows = all.entry(from[..same].to_vec()).or_default();
            let arrow = arrows.entry((a.clone(), b.clone()));
            arrow.or_insert_with(|| place.to_owned());
        }
    }

    /// Returns the module that a path from the root on leads to, without the items inside. The
    /// longest prefix that is a module: what follows are types and functions.
    fn module_of(&self, path: &[String]) -> Name {
        let lengths = (0..=path.len()).rev();
        let mut prefixes = lengths.map(|length| path[..length].to_vec());
        prefixes
            .find(|name| self.modules.contains_key(name))
            .unwrap_or_default()
    }

    /// Returns the modules that a path names in a module: those that it leads through by name and
    /// by re-export, without those that only lead to them. Empty: it is another crate's, or no
    /// module's. A re-export counts for the module that holds the item and for the one that exports
    /// it: a facade that everybody names is no layer of its own.
    fn named(&self, from: &Name, path: &[String], steps: usize) -> BTreeSet<Name> {
        let mut found = BTreeSet::new();
        let Some((mut at, rest)) = self.start(from, path) else {
            return found;
        };
        for (index, segment) in rest.iter().enumerate() {
            let child = below(&at, segment);
            if !self.modules.contains_key(&child) {
                // An item of this module, unless its name comes from elsewhere.
                if steps < MOST_STEPS {
                    found = self.imported(&at, segment, &rest[index + 1..], steps);
                }
                break;
            }
            at = child;
        }
        found.insert(at);
        // A path through the module itself has an arrow of its own there.
        found.remove(from);
        found
    }

    /// Returns the module that a path starts at, and the segments below that module. `None`: the
    /// path is another crate's. The rules are those of the 2018 edition: a path begins with
    /// `crate`, `self`, `super`, a name of the module, or another crate.
    fn start<'p>(&self, from: &Name, path: &'p [String]) -> Option<(Name, &'p [String])> {
        let (first, behind) = path.split_first()?;
        let mut at = from.clone();
        match &**first {
            "crate" => Some((Vec::new(), behind)),
            "self" => Some((at, behind)),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super");
                let ups = ups.count();
                at.truncate(at.len().saturating_sub(ups));
                Some((at, &path[ups..]))
            }
            name => self.knows(&at, name).then_some((at, path)),
        }
    }

    /// Returns the modules that a name leads to in a module that imports the name, with the
    /// segments behind the name. Glob imports are followed by their source like any other name.
    fn imported(&self, at: &Name, name: &str, rest: &[String], steps: usize) -> BTreeSet<Name> {
        let sources = self.sources(at, name).into_iter();
        let paths = sources.map(|source| [&source, rest].concat());
        let named = paths.map(|path| self.named(at, &path, steps + 1));
        named.flatten().collect()
    }

    /// Tells whether a name leads from a module to something of this crate. A local variable or a
    /// type of the prelude is no name of the crate's, and has no arrow.
    fn knows(&self, at: &Name, name: &str) -> bool {
        let is_child = self.modules.contains_key(&below(at, name));
        is_child || !self.sources(at, name).is_empty()
    }

    /// Returns the paths by which a module imports a name.
    fn sources(&self, at: &Name, name: &str) -> Vec<Name> {
        let Some((_, module)) = self.modules.get(at) else {
            return Vec::new();
        };
        let imports = module.imports.iter().filter(|import| import.name == name);
        // An import of the name by itself, of another crate: not looked at again.
        let others =
            imports.filter(|import| import.path.segments.first().is_none_or(|s| s != name));
        others.map(|import| import.path.segments.clone()).collect()
    }
}

/// Returns the name by which code calls the crate of a root file. Cargo's own rule for a package
/// without `[lib] name`: dashes become underscores.
fn crate_name(root: &str) -> String {
    let directory = root.split("/src/").next().unwrap_or(root);
    directory.replace(['/', '-'], "_")
}

/// Returns the files that a module's declaration in `file` may mean: the one that `path` gives,
/// beside the file, or one of the two below the module's directory. The compiler takes either; both
/// in one directory are an error of its.
fn candidates(file: &str, directory: &str, child: &str, given: Option<&str>) -> Vec<String> {
    let (beside, _) = file.rsplit_once('/').unwrap_or_default();
    match given {
        Some(given) => vec![format!("{beside}/{given}")],
        None => vec![
            format!("{directory}/{child}.rs"),
            format!("{directory}/{child}/mod.rs"),
        ],
    }
}

/// Makes the name of a child.
fn below(name: &[String], child: &str) -> Name {
    let mut name = name.to_vec();
    name.push(child.to_owned());
    name
}

/// Returns, for each node of a graph, the nodes that arrows lead to from there. Every node is
/// searched from: graphs have some thirty nodes.
fn reached(arrows: &Arrows) -> BTreeMap<&String, BTreeSet<&String>> {
    let nodes = arrows.keys().flat_map(|(a, b)| [a, b]);
    nodes.map(|node| (node, reach(arrows, node))).collect()
}

/// Returns the circles of a graph, each with the places of its arrows. Each group of modules that
/// reach each other is told once, whatever module is met first.
fn circles(arrows: &Arrows) -> Vec<String> {
    let reached = reached(arrows);
    let mut told = BTreeSet::new();
    let mut circles = Vec::new();
    for (node, others) in &reached {
        // A node of no circle does not reach itself.
        let others = others.iter().copied();
        let members: BTreeSet<&String> = others
            .filter(|other| reached[*other].contains(node))
            .collect();
        if !members.is_empty() && !told.contains(node) {
            circles.push(circle(arrows, &members));
            told.extend(members);
        }
    }
    circles
}

/// Says which modules use each other, and where. The places of all its arrows are listed, because
/// any one of them may be the one to cut.
fn circle(arrows: &Arrows, members: &BTreeSet<&String>) -> String {
    let inside = arrows
        .iter()
        .filter(|((a, b), _)| members.contains(a) && members.contains(b));
    let inside = inside.map(|((a, b), place)| format!("{a} uses {b} ({place})"));
    let names = members.iter().map(|name| name.as_str());
    format!(
        "{} use each other: {}",
        names.collect::<Vec<_>>().join(", "),
        inside.collect::<Vec<_>>().join("; ")
    )
}

/// Returns what arrows lead to from a node. A node reaches itself only by a circle.
fn reach<'a>(arrows: &'a Arrows, node: &'a str) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let next = arrows
            .keys()
            .filter(|(from, _)| from == node)
            .map(|(_, to)| to);
        open.extend(next.filter(|to| reached.insert(*to)).map(String::as_str));
    }
    reached
}

/// Reads the floor of each module from the table in the document. The document is read and not a
/// copy of it, so that the table in ARCHITECTURE stays true.
fn floors(text: &str) -> Result<BTreeMap<String, u32>> {
    let (_, section) = text
        .split_once(HEADING)
        .with_context(|| format!("{LAYERS} has no section {HEADING:?}"))?;
    let section = section.split("\n#").next().unwrap_or_default();
    let mut floors = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with('|')) {
        let Some((floor, modules)) = floor(line)? else {
            continue;
        };
        for name in modules {
            if floors.insert(name.clone(), floor).is_some() {
                bail!("{LAYERS}: {name} stands on two floors");
            }
        }
    }
    ensure!(!floors.is_empty(), "{LAYERS}: no floors below {HEADING:?}");
    Ok(floors)
}

/// Reads a row of the table: the floor and the modules there. `None`: the row is of the head. Rows
/// of the head have no number.
fn floor(row: &str) -> Result<Option<(u32, Vec<String>)>> {
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    let [_, floor, modules, ..] = *cells else {
        bail!("{LAYERS}: {row:?} is no floor");
    };
    let names = modules.split(',');
    let names = names.map(|name| name.trim().trim_matches('`').to_owned());
    Ok(floor.parse().ok().map(|floor| (floor, names.collect())))
}

/// Returns the modules without a floor, and the floors without a module. Both directions fail: a
/// module without a floor would escape the rule, and a floor without a module describes what is
/// gone.
fn lacking(floors: &BTreeMap<String, u32>, modules: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for module in modules {
        if !floors.contains_key(module) {
            wrong.push(format!("{LAYERED}: the table in {LAYERS} lacks {module}"));
        }
    }
    for module in floors.keys() {
        if !modules.contains(module) {
            wrong.push(format!(
                "{LAYERS}: a floor for {module}, which {LAYERED} lacks"
            ));
        }
    }
    wrong
}

/// Returns the modules and arrows that do not fit the floors. Equal floors fail too: two modules on
/// one floor may not use each other in either direction.
fn up(floors: &BTreeMap<String, u32>, modules: &BTreeSet<String>, arrows: &Arrows) -> Vec<String> {
    let mut wrong = lacking(floors, modules);
    for ((from, to), place) in arrows {
        if let (Some(floor), Some(other)) = (floors.get(from), floors.get(to))
            && floor <= other
        {
            wrong.push(format!(
                "{place}: {from} on floor {floor} uses {to} on floor {other}"
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests;
