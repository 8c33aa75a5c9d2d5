use super::{MODELS, Model, Placement};

#[test]
fn no_profile_reaches_beyond_the_memory_slices() {
    for model in &MODELS {
        let slices = model.profiles.iter().map(|profile| profile.size).max().unwrap_or(0);
        for profile in model.profiles {
            for place in profile.placements() {
                assert!(place.start + place.size <= slices, "{} {}", model.key, profile.name);
            }
        }
    }
}

#[test]
fn profiles_of_a_model_have_their_own_name_and_id() {
    for model in &MODELS {
        for (i, one) in model.profiles.iter().enumerate() {
            for other in &model.profiles[i + 1..] {
                assert_ne!(one.name, other.name, "{}", model.key);
                assert_ne!(one.id, other.id, "{}", model.key);
            }
        }
    }
}

#[test]
fn the_numbers_of_known_products() {
    let h100 = Model::by_key("h100-80gb").unwrap();
    let small = h100.profile("1g.10gb").unwrap();
    assert_eq!((small.id, small.memory, small.starts.len()), (19, 10_240, 7));
    let double = h100.profile("1g.20gb").unwrap();
    assert_eq!(double.placements().map(|p| p.start).collect::<Vec<_>>(), [0, 2, 4, 6]);
    assert_eq!(Model::by_key("A30-24GB").unwrap().profile("2g.12gb").unwrap().starts[..], [0, 2]);
    assert!(Model::by_key("L40S-48GB").unwrap().profiles.is_empty());
    assert!(Model::by_key("H1000").is_none());
}

#[test]
fn placements_overlap_where_they_share_a_slice() {
    let place = |start, size| Placement { start, size };
    assert!(place(0, 4).overlaps(place(3, 1)));
    assert!(place(6, 1).overlaps(place(4, 4)));
    assert!(!place(0, 4).overlaps(place(4, 4)));
    assert!(!place(2, 1).overlaps(place(3, 1)));
    assert!(place(0, 8).overlaps(place(7, 1)));
}

#[test]
fn memory_gives_what_data_sheets_say() {
    for (key, gigabytes) in [
        ("A100-40GB", 1555),
        ("A100-80GB", 2039),
        ("H100-80GB", 3352),
        ("H200-141GB", 4916),
        ("B200-180GB", 8183),
        ("A30-24GB", 933),
        ("L40S-48GB", 864),
        ("T4-16GB", 320),
    ] {
        assert_eq!(Model::by_key(key).unwrap().bandwidth(), gigabytes, "{key}");
    }
    assert_eq!(super::bandwidth(u32::MAX, u32::MAX), u32::MAX);
}
