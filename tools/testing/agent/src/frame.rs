// SPDX-License-Identifier: GPL-2.0
//! Frames on the byte stream between host and guest.
//!
//! A frame is a little-endian `u32` length followed by that many bytes of
//! [postcard](https://docs.rs/postcard). A virtio-serial port has no
//! connections: a new client finds whatever its predecessor left behind. Each
//! conversation therefore starts with [`SYNC`] in both directions, and a
//! receiver that has lost its place skips everything up to the next one. The
//! first four bytes of [`SYNC`] are a length no frame may have, so that a
//! receiver that is in step notices it, too.

use serde::{de::DeserializeOwned, Serialize};
use std::fmt;

/// Largest payload of a frame in bytes.
pub const MAX_FRAME: usize = 16 << 20;

/// Starts a conversation.
pub const SYNC: [u8; 16] = *b"\xff\xff\xff\xffmlx5-agent/1";

/// Why a byte stream cannot be read as frames.
#[derive(Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A length above [`MAX_FRAME`]; the decoder now looks for [`SYNC`].
    TooLong(usize),
    /// The payload is not what was expected.
    Payload(postcard::Error),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(f, "frame of {len} bytes, at most {MAX_FRAME} are allowed")
            }
            Self::Payload(error) => write!(f, "frame payload: {error}"),
        }
    }
}

impl std::error::Error for FrameError {}

/// Encodes `message` as one frame.
///
/// # Errors
///
/// [`FrameError::TooLong`] if it takes more than [`MAX_FRAME`] bytes.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(message, vec![0u8; 4]).map_err(FrameError::Payload)?;
    let len = bytes.len() - 4;
    match u32::try_from(len) {
        Ok(prefix) if len <= MAX_FRAME => bytes[..4].copy_from_slice(&prefix.to_le_bytes()),
        _ => return Err(FrameError::TooLong(len)),
    }
    Ok(bytes)
}

/// Reads the payload of a frame.
///
/// # Errors
///
/// [`FrameError::Payload`] if `payload` is not exactly one `T`.
pub fn decode<T: DeserializeOwned>(payload: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(payload).map_err(FrameError::Payload)? {
        (message, []) => Ok(message),
        _ => Err(FrameError::Payload(
            postcard::Error::DeserializeUnexpectedEnd,
        )),
    }
}

/// Splits a byte stream into frame payloads.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    in_step: bool,
}

impl Decoder {
    /// A decoder that ignores everything up to the first [`SYNC`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes received.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
        if !self.in_step {
            self.seek();
        }
    }

    /// Drops everything received and waits for [`SYNC`].
    pub fn reset(&mut self) {
        self.buffer.clear();
        self.in_step = false;
    }

    /// Whether a [`SYNC`] was seen, with no error since.
    pub fn in_step(&self) -> bool {
        self.in_step
    }

    /// The next complete payload, if there is one.
    ///
    /// # Errors
    ///
    /// [`FrameError::TooLong`]; call again, the decoder has gone on to the
    /// next [`SYNC`] if it is there already.
    pub fn next_payload(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        if !self.in_step {
            return Ok(None);
        }
        let Some((prefix, rest)) = self.buffer.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*prefix) as usize;
        if len > MAX_FRAME {
            self.in_step = false;
            self.seek();
            return Err(FrameError::TooLong(len));
        }
        if rest.len() < len {
            return Ok(None);
        }
        let payload = rest[..len].to_vec();
        self.buffer.drain(..4 + len);
        Ok(Some(payload))
    }

    /// Moves on behind the first `SYNC`, or keeps only what may be its start.
    fn seek(&mut self) {
        let found = self.buffer.windows(SYNC.len()).position(|w| w == SYNC);
        if let Some(at) = found {
            self.buffer.drain(..at + SYNC.len());
            self.in_step = true;
        } else {
            let keep = self.buffer.len().min(SYNC.len() - 1);
            self.buffer.drain(..self.buffer.len() - keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn payloads(decoder: &mut Decoder) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            match decoder.next_payload() {
                Ok(Some(payload)) => all.push(payload),
                Ok(None) => return all,
                Err(_) => {}
            }
        }
    }

    #[test]
    fn nothing_before_sync() {
        let mut decoder = Decoder::new();
        decoder.push(&encode(&7u32).unwrap());
        assert!(payloads(&mut decoder).is_empty());
        assert!(!decoder.in_step());
    }

    #[test]
    fn sync_at_a_frame_boundary_restarts() {
        let mut decoder = Decoder::new();
        decoder.push(&SYNC);
        decoder.push(&encode(&1u8).unwrap());
        decoder.push(&SYNC);
        decoder.push(&encode(&2u8).unwrap());
        assert_eq!(decoder.next_payload().unwrap(), Some(vec![1]));
        assert_eq!(
            decoder.next_payload(),
            Err(FrameError::TooLong(u32::MAX as usize))
        );
        assert_eq!(decoder.next_payload().unwrap(), Some(vec![2]));
    }

    #[test]
    fn too_long_is_refused_both_ways() {
        let big = serde_bytes::ByteBuf::from(vec![0u8; MAX_FRAME]);
        assert!(matches!(encode(&big), Err(FrameError::TooLong(_))));
        let mut decoder = Decoder::new();
        decoder.push(&SYNC);
        decoder.push(&(MAX_FRAME as u32 + 1).to_le_bytes());
        assert!(decoder.next_payload().is_err());
        assert!(!decoder.in_step());
    }

    #[test]
    fn trailing_bytes_are_refused() {
        assert!(decode::<u8>(&[1, 2]).is_err());
        assert_eq!(decode::<u8>(&[1]), Ok(1));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_frames(
            noise in prop::collection::vec(0u8..0xff, 0..64),
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..64), 0..8),
            cuts in prop::collection::vec(1usize..16, 1..32),
        ) {
            let mut stream = noise;
            stream.extend_from_slice(&SYNC);
            for frame in &frames {
                stream.extend(encode(&serde_bytes::Bytes::new(frame)).unwrap());
            }
            let mut decoder = Decoder::new();
            let mut seen = Vec::new();
            let mut rest = &stream[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (now, later) = rest.split_at((*cut).min(rest.len()));
                decoder.push(now);
                seen.extend(payloads(&mut decoder));
                rest = later;
            }
            let seen: Vec<Vec<u8>> = seen
                .iter()
                .map(|p| decode::<serde_bytes::ByteBuf>(p).unwrap().into_vec())
                .collect();
            prop_assert_eq!(seen, frames);
        }

        #[test]
        fn noise_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let mut decoder = Decoder::new();
            decoder.push(&SYNC);
            decoder.push(&bytes);
            let _ = payloads(&mut decoder);
            let _ = decode::<crate::proto::Request>(&bytes);
            let _ = decode::<crate::proto::Response>(&bytes);
            // Whatever happened, a new conversation works.
            decoder.reset();
            decoder.push(&SYNC);
            decoder.push(&encode(&3u8).unwrap());
            prop_assert_eq!(payloads(&mut decoder), vec![vec![3u8]]);
        }
    }
}
