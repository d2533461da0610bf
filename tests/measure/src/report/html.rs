//! The frame of a page of HTML that needs no other file.

/// The page carries its style, as a file beside it would be lost when the page is sent.
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:76em;margin:2em auto;padding:0 1em;color:#222}\
    table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ccc;text-align:right}\
    td:first-child,th:first-child{text-align:left}tr:hover td{background:#f2f6fb}svg{max-width:100%;height:auto;display:block}\
    h2{margin:1.6em 0 .2em}h3{margin-bottom:0}summary{cursor:pointer;color:#1f5fa8}.wide{overflow-x:auto}\
    .wide td,.wide th{padding:.25em .5em;font-size:13px}small{display:block;color:#666}.worse{color:#a61b1b}.better{color:#176b2c}\
    .text td{text-align:left;vertical-align:top}.note{color:#666}pre{background:#f5f5f5;padding:.6em;overflow-x:auto}\
    .good,.bad{border-left:.4em solid #176b2c;background:#eef6f0;padding:.6em 1em;font-size:17px}\
    .bad{border-color:#a61b1b;background:#fbeeee}td.group,th.group{border-left:2px solid #ccc}th[colspan]{text-align:center}";

/// Returns the page of this title, which is plain text, around its contents. The contents are HTML
/// already, and each caller escapes the texts that it puts in.
pub fn document(title: &str, contents: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n{contents}</body></html>\n"
    )
}

/// Returns plain text as HTML. The quotation mark is replaced too, as texts stand in attributes,
/// such as a tooltip's. The ampersand comes first: the other replacements make new ones.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
