//! The page of the demonstration: one HTML file with its pictures in it, which asks nothing of other servers.
use super::{Cell, Row, Section};
use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crossfade::data::Image;
use std::fmt::Write as _;

const STYLE: &str = include_str!("page.css");

/// The page with its sections and the commands to go on with. `lead` is a sentence below the title.
pub fn render(title: &str, lead: &str, sections: &[Section], commands: &[(String, &'static str)]) -> Result<String> {
    let mut body = String::new();
    for section in sections {
        write!(body, "<section>\n<h2>{}</h2>\n<p>{}</p>\n", escaped(&section.title), escaped(&section.text))?;
        for row in &section.rows {
            write_row(&mut body, row)?;
        }
        body.push_str("</section>\n");
    }
    if !commands.is_empty() {
        body.push_str("<section>\n<h2>Next</h2>\n<dl>\n");
        for (command, what) in commands {
            writeln!(body, "<dt><code>{}</code></dt><dd>{}</dd>", escaped(command), escaped(what))?;
        }
        body.push_str("</dl>\n</section>\n");
    }
    Ok(document(title, lead, "", &body))
}

/// A whole document around `body`; `head` has further tags for its head.
pub fn document(title: &str, lead: &str, head: &str, body: &str) -> String {
    let (title, lead) = (escaped(title), escaped(lead));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n{head}<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         </head>\n<body>\n<header>\n<h1>{title}</h1>\n<p>{lead}</p>\n</header>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

fn write_row(body: &mut String, row: &Row) -> Result<()> {
    let large = row.cells.iter().any(|cell| cell.image.width > 128);
    let kind = if large { "row large" } else { "row" };
    let note = if row.note.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(&row.note)) };
    let label = escaped(&row.label);
    write!(body, "<div class=\"{kind}\">\n<div class=\"label\">{label}{note}</div>\n<div class=\"cells\">\n")?;
    for cell in &row.cells {
        write_cell(body, cell, &row.label)?;
    }
    body.push_str("</div>\n</div>\n");
    Ok(())
}

fn write_cell(body: &mut String, cell: &Cell, label: &str) -> Result<()> {
    let Cell { image, caption } = cell;
    let alt = escaped(if caption.is_empty() { label } else { caption });
    write!(
        body,
        "<figure><img src=\"{}\" width=\"{}\" height=\"{}\" alt=\"{alt}\">",
        uri(image)?,
        image.width,
        image.height
    )?;
    if !caption.is_empty() {
        write!(body, "<figcaption>{}</figcaption>", escaped(caption))?;
    }
    body.push_str("</figure>\n");
    Ok(())
}

/// The picture as a URI that contains it.
pub fn uri(image: &Image) -> Result<String> {
    Ok(format!("data:image/png;base64,{}", STANDARD.encode(image.encode_png(&[])?)))
}

/// Text as HTML. Names of classes may come from anywhere.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_self_contained_and_escapes_names() {
        let image = Image::new(2, 2, 3, vec![9; 12]);
        let rows = vec![Row::new("<b>\"cats\" & dogs", "<i>", vec![image.clone(), image])];
        let sections = [Section { title: "A & B".into(), text: "text".into(), rows }];
        let page = render("Title", "lead", &sections, &[("crossfade models".into(), "models")]).unwrap();
        assert!(
            page.contains("&lt;b&gt;&quot;cats&quot; &amp; dogs") && !page.contains("<b>") && !page.contains("<i>")
        );
        assert_eq!(page.matches("src=\"data:image/png;base64,").count(), 2);
        assert!(!page.contains("http"), "no requests to other servers");
        assert!(page.contains("prefers-color-scheme: dark"));
    }
}
