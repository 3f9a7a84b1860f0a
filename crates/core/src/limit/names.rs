//! Choices that are stored as a number and written by people as a word.

macro_rules! names {
    ($(#[doc = $doc:literal])+ $type:ident { $($(#[doc = $what:literal])+ $variant:ident = $number:literal $name:literal,)+ }) => {
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $type {
            $($(#[doc = $what])+ $variant,)+
        }

        impl $type {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As people write it.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            fn number(self) -> u8 {
                match self { $(Self::$variant => $number),+ }
            }

            fn of_number(number: u8) -> Result<Self, $crate::codec::Unreadable> {
                match number { $($number => Ok(Self::$variant),)+ _ => Err($crate::codec::Unreadable) }
            }
        }
    };
}

pub(crate) use names;
