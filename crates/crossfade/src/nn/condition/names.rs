//! Modules whose parts have names that are no Rust identifiers, such as `fn.norm` or `first_coonv.0`.

/// Implements the engine's module for a struct of parts with dotted names, in the order of registration.
///
/// A part without a name is at the place of the struct itself. Fields after `keep` are plain values.
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

pub(super) use named_module;
