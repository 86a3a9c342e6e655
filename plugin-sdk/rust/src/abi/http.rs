//! The interface `http`, as the guest calls it. `result<response, failure>` is 24 bytes: the case, then the answer's status,
//! headers and body, or the failure's case and its text.

use super::Given;
use crate::http::{Request, Response};

#[link(wasm_import_module = "pelton:plugin/http@0.1.0")]
unsafe extern "C" {
    #[link_name = "send"]
    fn http_send(
        method: *const u8,
        method_bytes: usize,
        url: *const u8,
        url_bytes: usize,
        headers: *const [usize; 4],
        header_count: usize,
        body: *const u8,
        body_bytes: usize,
        result: *mut [u32; 6],
    );
}

/// Sends a request.
pub(crate) fn send(request: &Request) -> Result<Response, String> {
    let Request { method, url, headers, body } = request;
    let words = |(name, value): &(String, String)| {
        [name.as_ptr() as usize, name.len(), value.as_ptr() as usize, value.len()]
    };
    let headers: Vec<[usize; 4]> = headers.iter().map(words).collect();
    let mut result = [0_u32; 6];
    // SAFETY: pointers and lengths are those of live values, which the host only reads; it fills the result.
    unsafe {
        http_send(
            method.as_ptr(),
            method.len(),
            url.as_ptr(),
            url.len(),
            headers.as_ptr(),
            headers.len(),
            body.as_ptr(),
            body.len(),
            &raw mut result,
        );
    }
    let [case, first, ..] = result;
    let given = |at: usize| Given { at: result[at] as usize, bytes: result[at + 1] as usize };
    if case & 0xff != 0 {
        return Err(given(2).as_str().to_owned());
    }
    Ok(Response {
        status: first as u16,
        headers: headers_of(result[2], result[3]),
        body: given(4).as_slice().to_vec(),
    })
}

/// A list of pairs of texts, each of which is a piece of its own.
fn headers_of(at: u32, count: u32) -> Vec<(String, String)> {
    let list = Given { at: at as usize, bytes: count as usize * 16 };
    let words = list.as_slice().as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word) as usize);
    let words: Vec<usize> = words.collect();
    let text = |at: usize, bytes: usize| Given { at, bytes }.as_str().to_owned();
    words.as_chunks::<4>().0.iter().map(|[a, b, c, d]| (text(*a, *b), text(*c, *d))).collect()
}
