//! The engine's module trait for types whose parameters need names that its derive macro cannot give them.

/// Implements the engine's module for a struct of parts whose names are no Rust identifiers, such as `fn.norm` or
/// `first_coonv.0`, in the order of registration.
///
/// The parameters of a part with an empty name have the names that they have in the part itself. Fields after `keep` are
/// plain values.
macro_rules! named_module {
    ($Type:ident { $($field:ident: $name:literal),+ $(,)? } $(keep $($kept:ident),+)?) => {
        impl burn::module::Module for $Type {
            fn visit<V: burn::module::ModuleVisitor>(&self, visitor: &mut V) {
                $(
                    if !$name.is_empty() {
                        visitor.enter_module($name, stringify!($Type));
                    }
                    burn::module::Module::visit(&self.$field, visitor);
                    if !$name.is_empty() {
                        visitor.exit_module($name, stringify!($Type));
                    }
                )+
            }
            fn map<P: burn::module::ModuleMapper>(self, mapper: &mut P) -> Self {
                $(
                    if !$name.is_empty() {
                        mapper.enter_module($name, stringify!($Type));
                    }
                    let $field = burn::module::Module::map(self.$field, mapper);
                    if !$name.is_empty() {
                        mapper.exit_module($name, stringify!($Type));
                    }
                )+
                Self { $($field,)+ $($($kept: self.$kept),+)? }
            }
            fn collect_devices(&self, devices: burn::module::Devices) -> burn::module::Devices {
                $(let devices = burn::module::Module::collect_devices(&self.$field, devices);)+
                devices
            }
            fn fork(self, device: &burn::tensor::Device) -> Self {
                $(let $field = burn::module::Module::fork(self.$field, device);)+
                Self { $($field,)+ $($($kept: self.$kept),+)? }
            }
            fn to_device(self, device: &burn::tensor::Device) -> Self {
                $(let $field = burn::module::Module::to_device(self.$field, device);)+
                Self { $($field,)+ $($($kept: self.$kept),+)? }
            }
            fn valid(&self) -> Self {
                Self {
                    $($field: burn::module::Module::valid(&self.$field),)+
                    $($($kept: self.$kept.clone()),+)?
                }
            }
            fn train(self) -> Self {
                $(let $field = burn::module::Module::train(self.$field);)+
                Self { $($field,)+ $($($kept: self.$kept),+)? }
            }
            fn materialize(self) -> Self {
                $(let $field = burn::module::Module::materialize(self.$field);)+
                Self { $($field,)+ $($($kept: self.$kept),+)? }
            }
        }

        impl burn::module::ModuleDisplayDefault for $Type {
            fn content(&self, content: burn::module::Content) -> Option<burn::module::Content> {
                $(let content = content.add($name, &self.$field);)+
                content.optional()
            }
        }
        impl burn::module::ModuleDisplay for $Type {}
    };
}

/// Implements the engine's module for an enum whose variants hold one module each, or nothing (`empty`).
///
/// Parameters have the names that they have in the variant's module; a derived enum would put the variant's name in front.
macro_rules! enum_module {
    ($Type:ident { $($Variant:ident),+ $(,)? } $(empty $($Empty:ident),+)?) => {
        impl burn::module::Module for $Type {
            fn visit<V: burn::module::ModuleVisitor>(&self, visitor: &mut V) {
                match self {
                    $(Self::$Variant(module) => burn::module::Module::visit(module, visitor),)+
                    $($(Self::$Empty => (),)+)?
                }
            }
            fn map<P: burn::module::ModuleMapper>(self, mapper: &mut P) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::map(module, mapper)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
            fn collect_devices(&self, devices: burn::module::Devices) -> burn::module::Devices {
                match self {
                    $(Self::$Variant(module) => burn::module::Module::collect_devices(module, devices),)+
                    $($(Self::$Empty => devices,)+)?
                }
            }
            fn fork(self, device: &burn::tensor::Device) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::fork(module, device)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
            fn to_device(self, device: &burn::tensor::Device) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::to_device(module, device)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
            fn valid(&self) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::valid(module)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
            fn train(self) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::train(module)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
            fn materialize(self) -> Self {
                match self {
                    $(Self::$Variant(module) => Self::$Variant(burn::module::Module::materialize(module)),)+
                    $($(Self::$Empty => Self::$Empty,)+)?
                }
            }
        }

        impl burn::module::ModuleDisplayDefault for $Type {
            fn content(&self, content: burn::module::Content) -> Option<burn::module::Content> {
                match self {
                    $(Self::$Variant(module) => content.add(stringify!($Variant), module),)+
                    $($(Self::$Empty => content,)+)?
                }
                .optional()
            }
        }
        impl burn::module::ModuleDisplay for $Type {}
    };
}

pub(super) use enum_module;
pub(super) use named_module;
