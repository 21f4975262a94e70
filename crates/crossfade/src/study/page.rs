//! HTML pages in a single file: no scripts, no external fonts or images; with a light and a dark theme.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

const STYLE: &str = "
:root { color-scheme: light dark; --edge: #8884; --soft: #8881; --strong: #0a6; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--edge); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--edge); text-align: left; white-space: nowrap; }
td.fact { white-space: normal; overflow-wrap: anywhere; }
td.best { font-weight: 700; color: var(--strong); }
sup { font-weight: 400; }
figure { display: inline-block; margin: .5rem 1rem .5rem 0; vertical-align: top; }
figure img { image-rendering: pixelated; max-width: 100%; border: 1px solid var(--edge); }
figcaption, .note { font-size: .85rem; opacity: .8; }
.chart { background: #fff; border-radius: 6px; padding: .25rem; max-width: 56rem; }
.chart svg { width: 100%; height: auto; display: block; }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; font-size: .85rem; }
summary { cursor: pointer; margin: .4rem 0; }
";

/// Escapes text for any place in a page.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A cell of a table.
pub(super) struct Td {
    text: String,
    class: &'static str,
    superscript: String,
}

impl Td {
    /// Plain text.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), class: "", superscript: String::new() }
    }

    /// Long text that may wrap anywhere.
    pub fn fact(text: impl Into<String>) -> Self {
        Self { class: "fact", ..Self::new(text) }
    }

    /// Text that is emphasised if it is the best of its column, with a superscript.
    pub fn marked(text: impl Into<String>, best: bool, superscript: &str) -> Self {
        Self { text: text.into(), class: if best { "best" } else { "" }, superscript: superscript.into() }
    }
}

/// A page under construction; all text is escaped.
pub(super) struct Page(String);

impl Page {
    /// A page with a title and no content yet.
    pub fn new(title: &str) -> Self {
        let title = escape(title);
        Self(format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        ))
    }

    fn push(&mut self, html: std::fmt::Arguments) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(html);
        self.0.push('\n');
    }

    /// A heading of a section.
    pub fn heading(&mut self, text: &str) {
        self.push(format_args!("<h2>{}</h2>", escape(text)));
    }

    /// A paragraph.
    pub(crate) fn paragraph(&mut self, text: &str) {
        self.push(format_args!("<p>{}</p>", escape(text)));
    }

    /// A small paragraph.
    pub fn note(&mut self, text: &str) {
        self.push(format_args!("<p class=\"note\">{}</p>", escape(text)));
    }

    /// A table; the first cell of each row is its header.
    pub fn table(&mut self, head: &[String], rows: Vec<Vec<Td>>) {
        self.push(format_args!("<div class=\"wide\"><table>"));
        if !head.is_empty() {
            let cells: String = head.iter().map(|text| format!("<th>{}</th>", escape(text))).collect();
            self.push(format_args!("<tr>{cells}</tr>"));
        }
        for row in rows {
            let cell = |(i, td): (usize, &Td)| {
                let tag = if i == 0 { "th" } else { "td" };
                let class = if td.class.is_empty() { String::new() } else { format!(" class=\"{}\"", td.class) };
                let superscript = match td.superscript.as_str() {
                    "" => String::new(),
                    text => format!("<sup>{}</sup>", escape(text)),
                };
                format!("<{tag}{class}>{}{superscript}</{tag}>", escape(&td.text))
            };
            let cells: String = row.iter().enumerate().map(cell).collect();
            self.push(format_args!("<tr>{cells}</tr>"));
        }
        self.push(format_args!("</table></div>"));
    }

    /// An SVG chart, which is inserted without escaping.
    pub fn svg(&mut self, svg: &str) {
        // The XML declaration is for files and not allowed within a page.
        let inner = svg.find("<svg").map_or(svg, |at| &svg[at..]);
        self.push(format_args!("<div class=\"chart\">{inner}</div>"));
    }

    /// A PNG image at `scale` times its size.
    pub fn picture(&mut self, png: &[u8], width: usize, scale: usize, caption: &str) {
        let (data, caption) = (STANDARD.encode(png), escape(caption));
        let width = width * scale;
        self.push(format_args!(
            "<figure><img width=\"{width}\" alt=\"{caption}\" src=\"data:image/png;base64,{data}\">\
             <figcaption>{caption}</figcaption></figure>"
        ));
    }

    /// Preformatted text that unfolds when its summary is clicked.
    pub(crate) fn folded(&mut self, summary: &str, text: &str) {
        self.push(format_args!("<details><summary>{}</summary><pre>{}</pre></details>", escape(summary), escape(text)));
    }

    /// The page as HTML.
    pub fn finish(mut self) -> String {
        self.0.push_str("</body>\n</html>\n");
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_becomes_markup() {
        let evil = "<script>alert('&\"')</script>";
        let mut page = Page::new(evil);
        page.heading(evil);
        page.paragraph(evil);
        page.note(evil);
        page.table(&[evil.into()], vec![vec![Td::new(evil), Td::marked(evil, true, evil)], vec![Td::fact(evil)]]);
        page.picture(b"png", 8, 2, evil);
        page.folded(evil, evil);
        let html = page.finish();
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("http"), "nothing comes from elsewhere");
        assert_eq!(html.matches("&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;").count(), 14);
    }
}
